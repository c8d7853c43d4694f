//! Finding out what a type's `Deserialize` asks for.
//!
//! The type is deserialised from dummies, again and again: each *pass* shows the shapes along one
//! way through the type, and the next pass takes a way that leads to something not yet seen: the
//! content of an option, an element of a sequence, another variant. What was seen is kept in a
//! [`Graph`], where equal types are one node, so recursive types have finitely many nodes and the
//! passes come to an end.
//!
//! Off its route a pass takes what is quickly done: no content, no elements, the variant that was
//! the first to be completed. That one contains no value of the same enum (such a value would have
//! been completed before it), so values of recursive types end, too.
//!
//! A pass that fails is repeated with another answer to the type's last question, as long as there
//! are others; then with another variant where it was free to choose. If nothing helps, its aim is
//! given up until the graph has grown. Each of these steps can only be taken so many times, and
//! [`STEPS_MAX`] bounds their sum.

mod answers;
mod elements;
mod graph;
mod identity;
mod tracer;

use std::panic::{self, AssertUnwindSafe};

use serde::de::DeserializeOwned;

use graph::Route;
pub(super) use graph::{Contents, Graph, Node, NodeId};
use tracer::{Pass, Tracer};

/// Questions that are answered for one type, over all passes. Types that need more are traced in
/// part; each second takes some ten million.
const STEPS_MAX: usize = 4_000_000;

/// Traces `V`; the node is that of `V` itself.
pub(super) fn trace<V: DeserializeOwned>() -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let root = graph.add();
    let mut steps_left = STEPS_MAX;
    explore::<V>(&mut graph, root, None, &mut steps_left);
    while steps_left > 0
        && let Some(route) = graph.route_to_unexplored(root)
    {
        let target = (route.target, route.variant);
        explore::<V>(&mut graph, root, Some(route), &mut steps_left);
        graph.give_up(target);
    }
    (graph, root)
}

/// Repeats a pass until it gets through, reaches its target, or nothing is left to try.
fn explore<V: DeserializeOwned>(
    graph: &mut Graph,
    root: NodeId,
    route: Option<Route>,
    steps_left: &mut usize,
) {
    let target = route.as_ref().map(|route| (route.target, route.variant));
    loop {
        let mut pass = Pass::new(graph, route.as_ref(), *steps_left);
        let tracer = Tracer::start(&mut pass, root);
        // What the pass leaves behind if it unwinds is a graph with less in it, nothing worse.
        let result = panic::catch_unwind(AssertUnwindSafe(|| V::deserialize(tracer).is_ok()));
        let (trail, left) = pass.end();
        *steps_left = left;
        let reached = target.is_some_and(|target| graph.is_settled(target));
        let done = reached || *steps_left == 0 || !matches!(result, Ok(false));
        if done || !graph.try_otherwise(&trail) {
            return;
        }
    }
}
