//! What is known of a type: a graph in which each type with parts is one node.

use std::collections::{BTreeMap, VecDeque};

use super::answers;
use super::identity::Identity;
use super::tracer::Trail;
use crate::schema::Plain;

pub(in crate::schema) type NodeId = usize;

/// A part of a type.
#[derive(Debug)]
pub(in crate::schema) enum Node {
    /// Not asked for yet.
    Unknown,
    /// The same type as another node.
    Same(NodeId),
    Plain(Plain),
    /// Something that may be there or not.
    Several(Several),
    /// One of each.
    Tuple(Vec<NodeId>),
    /// So many of the same: a tuple that is too long to look at each element.
    Array(NodeId, usize),
    Struct(Vec<(&'static str, NodeId)>),
    Enum(EnumNode),
    /// It contradicts itself.
    Opaque,
}

/// An option, sequence (one part) or map (two).
#[derive(Debug)]
pub(in crate::schema) struct Several {
    pub(in crate::schema) question: &'static str,
    pub(in crate::schema) parts: Vec<NodeId>,
    pub(super) state: State,
}

#[derive(Debug)]
pub(in crate::schema) struct EnumNode {
    pub(in crate::schema) variants: Vec<VariantNode>,
    /// The variant that was the first to be completed.
    pub(super) first: Option<usize>,
}

#[derive(Debug)]
pub(in crate::schema) struct VariantNode {
    pub(in crate::schema) name: &'static str,
    pub(in crate::schema) contents: Contents,
    pub(super) state: State,
    /// Led nowhere when it was chosen freely.
    pub(super) avoid: bool,
}

#[derive(Debug)]
pub(in crate::schema) enum Contents {
    Unknown,
    Unit,
    Tuple(Vec<NodeId>),
    Struct(Vec<(&'static str, NodeId)>),
}

impl Contents {
    pub(in crate::schema) fn parts(&self) -> Vec<NodeId> {
        match self {
            Contents::Unknown | Contents::Unit => Vec::new(),
            Contents::Tuple(parts) => parts.clone(),
            Contents::Struct(fields) => fields.iter().map(|(_, part)| *part).collect(),
        }
    }
}

/// Whether a content, an element or a variant has been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unexplored,
    Explored,
    /// An attempt failed when the graph had grown so far.
    GivenUp {
        progress: usize,
    },
}

/// A way from the root to something that hasn't been seen.
pub(super) struct Route {
    /// Which variant and which of its parts (or of a node's parts, with variant 0) to follow.
    pub(super) steps: Vec<(usize, usize)>,
    pub(super) target: NodeId,
    /// Which variant of the target to look at; 0 if it is no enum.
    pub(super) variant: usize,
}

/// The node and the step by which another one was found.
type Origin = (NodeId, (usize, usize));

#[derive(Default)]
pub(in crate::schema) struct Graph {
    pub(in crate::schema) nodes: Vec<Node>,
    /// Which answer each node gets; one past the last if none was accepted.
    answers: Vec<usize>,
    known: BTreeMap<Identity, NodeId>,
    /// Grows with each content, element or variant that is seen for the first time.
    pub(super) progress: usize,
}

impl Graph {
    pub(super) fn add(&mut self) -> NodeId {
        self.nodes.push(Node::Unknown);
        self.answers.push(0);
        self.nodes.len() - 1
    }

    pub(super) fn add_many(&mut self, count: usize) -> Vec<NodeId> {
        (0..count).map(|_| self.add()).collect()
    }

    /// The node that stands for `node`.
    pub(in crate::schema) fn resolve(&self, mut node: NodeId) -> NodeId {
        while let Node::Same(other) = self.nodes[node] {
            node = other;
        }
        node
    }

    /// Notes that `slot` is of a type with parts. `None` if it was another one before.
    pub(super) fn enter(
        &mut self,
        slot: NodeId,
        identity: Identity,
        make: impl FnOnce(&mut Graph) -> Node,
    ) -> Option<NodeId> {
        let node = self.resolve(slot);
        let known = self.known.get(&identity).copied();
        match (&self.nodes[node], known) {
            (Node::Unknown, Some(known)) => {
                self.nodes[node] = Node::Same(known);
                Some(known)
            }
            (Node::Unknown, None) => {
                self.nodes[node] = make(self);
                self.known.insert(identity, node);
                Some(node)
            }
            (_, Some(known)) if known == node => Some(node),
            _ => {
                self.nodes[node] = Node::Opaque;
                None
            }
        }
    }

    /// Notes that `slot` is plain; which answer to give. `None` if it was something else before.
    pub(super) fn plain(&mut self, slot: NodeId, plain: Plain) -> Option<usize> {
        let node = self.resolve(slot);
        match self.nodes[node] {
            Node::Unknown => self.nodes[node] = Node::Plain(plain),
            Node::Plain(before) if before == plain => {}
            _ => {
                self.nodes[node] = Node::Opaque;
                return None;
            }
        }
        Some(self.answers[node] % answers::count(plain))
    }

    /// Whether a type didn't want to have nothing, off the route.
    pub(super) fn refuses_nothing(&self, node: NodeId) -> bool {
        self.answers[node] == 1
    }

    /// The state of a content, an element (variant 0) or a variant; `None` once it is opaque.
    fn state(&mut self, (node, variant): (NodeId, usize)) -> Option<&mut State> {
        match &mut self.nodes[node] {
            Node::Several(several) => Some(&mut several.state),
            Node::Enum(it) => Some(&mut it.variants[variant].state),
            _ => None,
        }
    }

    /// Whether there is nothing to be seen at a target any more.
    pub(super) fn is_settled(&mut self, target: (NodeId, usize)) -> bool {
        self.state(target)
            .is_none_or(|state| *state == State::Explored)
    }

    /// Gives a target up, unless it was reached.
    pub(super) fn give_up(&mut self, target: (NodeId, usize)) {
        let progress = self.progress;
        if let Some(state) = self
            .state(target)
            .filter(|state| **state != State::Explored)
        {
            *state = State::GivenUp { progress };
        }
    }

    /// Notes that a content, an element or a variant has been seen whole.
    pub(super) fn explored(&mut self, node: NodeId, variant: usize) {
        let Some(state) = self.state((node, variant)) else {
            return;
        };
        let before = std::mem::replace(state, State::Explored);
        self.progress += usize::from(before != State::Explored);
        let Node::Enum(it) = &mut self.nodes[node] else {
            return;
        };
        if it.first.is_none() {
            it.first = Some(variant);
            // What led nowhere may have lacked just this enum.
            for node in &mut self.nodes {
                if let Node::Enum(it) = node {
                    it.variants
                        .iter_mut()
                        .for_each(|variant| variant.avoid = false);
                }
            }
        }
    }

    /// Changes something that may let a failed pass succeed. `false` if nothing is left to change.
    pub(super) fn try_otherwise(&mut self, trail: &Trail) -> bool {
        if let Some(node) = trail.last_answer {
            let count = match &self.nodes[node] {
                Node::Plain(plain) => answers::count(*plain),
                Node::Several(_) => 2,
                _ => 0,
            };
            if self.answers[node] < count {
                self.answers[node] += 1;
                if self.answers[node] < count {
                    return true;
                }
            }
        }
        let Some((node, variant)) = trail.free_choice else {
            return false;
        };
        match &mut self.nodes[node] {
            Node::Enum(it) if !it.variants[variant].avoid => {
                it.variants[variant].avoid = true;
                true
            }
            _ => false,
        }
    }

    /// The shortest way to something unseen that hasn't been given up since the graph last grew.
    pub(super) fn route_to_unexplored(&self, root: NodeId) -> Option<Route> {
        let root = self.resolve(root);
        let mut queue = VecDeque::from([root]);
        let mut came_from = BTreeMap::from([(root, None)]);
        while let Some(node) = queue.pop_front() {
            if let Some(variant) = self.worth_exploring(node) {
                return Some(route(&came_from, node, variant));
            }
            for (variant, parts) in self.parts(node).into_iter().enumerate() {
                for (at, part) in parts.into_iter().enumerate() {
                    let part = self.resolve(part);
                    came_from.entry(part).or_insert_with(|| {
                        queue.push_back(part);
                        Some((node, (variant, at)))
                    });
                }
            }
        }
        None
    }

    fn worth_exploring(&self, node: NodeId) -> Option<usize> {
        let worth = |state: &State| match state {
            State::Unexplored => true,
            State::Explored => false,
            State::GivenUp { progress } => *progress < self.progress,
        };
        match &self.nodes[node] {
            Node::Several(several) => worth(&several.state).then_some(0),
            Node::Enum(it) => it.variants.iter().position(|variant| worth(&variant.state)),
            _ => None,
        }
    }

    /// The parts of a node, or of each of its variants.
    fn parts(&self, node: NodeId) -> Vec<Vec<NodeId>> {
        match &self.nodes[node] {
            Node::Several(several) => vec![several.parts.clone()],
            Node::Tuple(parts) => vec![parts.clone()],
            Node::Array(part, _) => vec![vec![*part]],
            Node::Struct(fields) => vec![fields.iter().map(|(_, part)| *part).collect()],
            Node::Enum(it) => it.variants.iter().map(|it| it.contents.parts()).collect(),
            Node::Unknown | Node::Same(_) | Node::Plain(_) | Node::Opaque => Vec::new(),
        }
    }
}

fn route(came_from: &BTreeMap<NodeId, Option<Origin>>, target: NodeId, variant: usize) -> Route {
    let mut steps = Vec::new();
    let mut node = target;
    while let Some(Some((before, step))) = came_from.get(&node) {
        steps.push(*step);
        node = *before;
    }
    steps.reverse();
    Route {
        steps,
        target,
        variant,
    }
}
