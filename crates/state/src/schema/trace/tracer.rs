//! The deserializer that has no data: it writes down what it is asked for and answers with dummies.

use std::fmt::{self, Display};

use serde::de::{self, Visitor};
use serde::forward_to_deserialize_any;

use super::answers::{self, CHARS, NUMBERS, TEXTS};
use super::elements::{Choice, Elements};
use super::graph::{Contents, EnumNode, Graph, Node, NodeId, Route, Several, State, VariantNode};
use super::identity::Identity;
use crate::schema::{DEPTH_MAX, Plain};

/// Tuples that are longer are arrays.
const TUPLE_LENGTH_MAX: usize = 64;

/// The type wants something a dummy can't satisfy, or the pass has come to its end.
#[derive(Debug)]
pub(super) struct Stopped;

impl Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shape ends here")
    }
}

impl std::error::Error for Stopped {}

impl de::Error for Stopped {
    fn custom<T: Display>(_message: T) -> Self {
        Stopped
    }
}

/// Where a pass ended.
pub(super) struct Trail {
    /// The node that was answered last.
    pub(super) last_answer: Option<NodeId>,
    /// The innermost enum that the pass was in and whose variant it was free to choose.
    pub(super) free_choice: Option<(NodeId, usize)>,
}

/// One run of the type's `Deserialize`.
pub(super) struct Pass<'g> {
    pub(super) graph: &'g mut Graph,
    route: Option<&'g Route>,
    steps_left: usize,
    depth: usize,
    last_answer: Option<NodeId>,
    /// Enums, options, … that are being answered: node, variant, and whether the choice was free.
    open: Vec<(NodeId, usize, bool)>,
}

impl<'g> Pass<'g> {
    pub(super) fn new(graph: &'g mut Graph, route: Option<&'g Route>, steps_left: usize) -> Self {
        Pass {
            graph,
            route,
            steps_left,
            depth: 0,
            last_answer: None,
            open: Vec::new(),
        }
    }

    pub(super) fn end(self) -> (Trail, usize) {
        let free = self.open.iter().rfind(|(.., free)| *free);
        let trail = Trail {
            last_answer: self.last_answer,
            free_choice: free.map(|(node, variant, _)| (*node, *variant)),
        };
        (trail, self.steps_left)
    }

    fn is_open(&self, node: NodeId, variant: usize) -> bool {
        let mut open = self.open.iter();
        open.any(|(other, of, _)| (*other, *of) == (node, variant))
    }
}

/// Answers for one slot of the graph.
pub(super) struct Tracer<'p, 'g> {
    pub(super) pass: &'p mut Pass<'g>,
    slot: NodeId,
    /// How many steps of the route lead here; `None` off the route.
    route: Option<usize>,
}

impl<'p, 'g> Tracer<'p, 'g> {
    pub(super) fn start(pass: &'p mut Pass<'g>, root: NodeId) -> Self {
        let route = pass.route.map(|_| 0);
        Tracer {
            pass,
            slot: root,
            route,
        }
    }

    /// The next step of the route; `None` off the route or at its end.
    fn step(&self) -> Option<(usize, usize)> {
        self.pass.route?.steps.get(self.route?).copied()
    }

    fn is_target(&self) -> bool {
        let route = self.pass.route;
        route.is_some_and(|route| self.route == Some(route.steps.len()))
    }

    /// The tracer of part `at` of this node, which is in `slot`.
    pub(super) fn part(&mut self, at: usize, slot: NodeId) -> Result<Tracer<'_, 'g>, Stopped> {
        let on_route = self.step().is_some_and(|(_, part)| part == at);
        let route = self.route.filter(|_| on_route).map(|steps| steps + 1);
        if self.pass.depth == DEPTH_MAX - 1 {
            return Err(Stopped);
        }
        self.pass.depth += 1;
        Ok(Tracer {
            pass: self.pass,
            slot,
            route,
        })
    }

    /// A part has been answered.
    pub(super) fn leave_part(&mut self) {
        self.pass.depth -= 1;
    }

    fn spend_step(&mut self) -> Result<(), Stopped> {
        self.pass.steps_left = self.pass.steps_left.checked_sub(1).ok_or(Stopped)?;
        Ok(())
    }

    fn answer(&mut self, plain: Plain) -> Result<usize, Stopped> {
        self.spend_step()?;
        let answer = self.pass.graph.plain(self.slot, plain).ok_or(Stopped)?;
        self.pass.last_answer = Some(self.slot);
        Ok(answer)
    }

    fn enter(
        &mut self,
        identity: Identity,
        make: impl FnOnce(&mut Graph) -> Node,
    ) -> Result<NodeId, Stopped> {
        self.spend_step()?;
        let entered = self.pass.graph.enter(self.slot, identity, make);
        self.slot = entered.ok_or(Stopped)?;
        Ok(self.slot)
    }

    /// Enters an option, sequence or map. Whether it is to have content, and the parts of that.
    fn several<V>(
        &mut self,
        question: &'static str,
        parts: usize,
    ) -> Result<(bool, Vec<NodeId>), Stopped> {
        let node = self.enter(Identity::new::<V>(question), |graph| {
            Node::Several(Several {
                question,
                parts: graph.add_many(parts),
                state: State::Unexplored,
            })
        })?;
        let Node::Several(several) = &self.pass.graph.nodes[node] else {
            return Err(Stopped);
        };
        let parts = several.parts.clone();
        let wanted = self.is_target() || self.step().is_some();
        let refuses = self.pass.graph.refuses_nothing(node) && !self.pass.is_open(node, 0);
        if !wanted {
            self.pass.last_answer = Some(node);
        }
        Ok((wanted || refuses, parts))
    }

    /// Runs `visit` while this node counts as being answered.
    fn while_open<T>(
        self,
        variant: usize,
        free: bool,
        visit: impl FnOnce(Tracer<'_, 'g>) -> Result<T, Stopped>,
    ) -> Result<T, Stopped> {
        let (slot, route, open) = (self.slot, self.route, self.pass.open.len());
        self.pass.open.push((slot, variant, free));
        let pass = &mut *self.pass;
        let value = visit(Tracer { pass, slot, route })?;
        // Not after an error: `open` then says where the pass ended.
        self.pass.open.truncate(open);
        self.pass.graph.explored(slot, variant);
        Ok(value)
    }

    fn choose_variant(&self, node: NodeId) -> Result<(usize, bool), Stopped> {
        let Node::Enum(it) = &self.pass.graph.nodes[node] else {
            return Err(Stopped);
        };
        if let Some((variant, _)) = self.step() {
            return Ok((variant, false));
        }
        if let (true, Some(route)) = (self.is_target(), self.pass.route) {
            return Ok((route.variant, false));
        }
        let usable = |at: &usize| !it.variants[*at].avoid && !self.pass.is_open(node, *at);
        let variant = it.first.or_else(|| (0..it.variants.len()).find(usable));
        Ok((variant.ok_or(Stopped)?, true))
    }
}

macro_rules! answer_plain {
    ($($method:ident $plain:ident $visit:ident($answer:expr);)*) => {$(
        fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stopped> {
            let answer: fn(usize) -> _ = $answer;
            visitor.$visit(answer(self.answer(Plain::$plain)?))
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Tracer<'_, '_> {
    type Error = Stopped;

    answer_plain! {
        deserialize_bool Bool visit_bool(|at| at == 1);
        deserialize_i8 I8 visit_i8(|at| NUMBERS[at] as i8);
        deserialize_i16 I16 visit_i16(|at| NUMBERS[at].into());
        deserialize_i32 I32 visit_i32(|at| NUMBERS[at].into());
        deserialize_i64 I64 visit_i64(|at| NUMBERS[at].into());
        deserialize_i128 I128 visit_i128(|at| NUMBERS[at].into());
        deserialize_u8 U8 visit_u8(|at| NUMBERS[at]);
        deserialize_u16 U16 visit_u16(|at| NUMBERS[at].into());
        deserialize_u32 U32 visit_u32(|at| NUMBERS[at].into());
        deserialize_u64 U64 visit_u64(|at| NUMBERS[at].into());
        deserialize_u128 U128 visit_u128(|at| NUMBERS[at].into());
        deserialize_f32 F32 visit_f32(|at| NUMBERS[at].into());
        deserialize_f64 F64 visit_f64(|at| NUMBERS[at].into());
        deserialize_char Char visit_char(|at| CHARS[at]);
        deserialize_str String visit_str(|at| TEXTS[at]);
        deserialize_string String visit_str(|at| TEXTS[at]);
        deserialize_bytes Bytes visit_bytes(|at| answers::bytes(at));
        deserialize_byte_buf Bytes visit_bytes(|at| answers::bytes(at));
    }

    fn deserialize_unit<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stopped> {
        self.answer(Plain::Unit)?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stopped> {
        match self.several::<V>("option", 1)? {
            (false, _) => visitor.visit_none(),
            (true, parts) => self.while_open(0, false, |mut it| {
                let value = visitor.visit_some(it.part(0, parts[0])?)?;
                it.leave_part();
                Ok(value)
            }),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stopped> {
        match self.several::<V>("sequence", 1)? {
            (false, _) => visitor.visit_seq(Elements::new(self, Vec::new())),
            (true, parts) => {
                self.while_open(0, false, |it| visitor.visit_seq(Elements::new(it, parts)))
            }
        }
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stopped> {
        match self.several::<V>("map", 2)? {
            (false, _) => visitor.visit_map(Elements::new(self, Vec::new())),
            (true, parts) => {
                self.while_open(0, false, |it| visitor.visit_map(Elements::new(it, parts)))
            }
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        mut self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        let identity = Identity::new::<V>("tuple").with_length(length);
        let node = self.enter(identity, |graph| match length > TUPLE_LENGTH_MAX {
            true => Node::Array(graph.add(), length),
            false => Node::Tuple(graph.add_many(length)),
        })?;
        let parts = match &self.pass.graph.nodes[node] {
            Node::Tuple(parts) => parts.clone(),
            Node::Array(part, length) => vec![*part; *length],
            _ => return Err(Stopped),
        };
        visitor.visit_seq(Elements::new(self, parts))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        let identity = Identity::new::<V>("struct").with_members(name, fields);
        let node = self.enter(identity, |graph| {
            Node::Struct(fields.iter().map(|name| (*name, graph.add())).collect())
        })?;
        let Node::Struct(fields) = &self.pass.graph.nodes[node] else {
            return Err(Stopped);
        };
        let parts = fields.iter().map(|(_, part)| *part).collect();
        visitor.visit_seq(Elements::new(self, parts))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        let identity = Identity::new::<V>("enum").with_members(name, variants);
        let node = self.enter(identity, |_| {
            let variants = variants.iter().map(|name| VariantNode {
                name,
                contents: Contents::Unknown,
                state: State::Unexplored,
                avoid: false,
            });
            Node::Enum(EnumNode {
                variants: variants.collect(),
                first: None,
            })
        })?;
        let (variant, free) = self.choose_variant(node)?;
        self.while_open(variant, free, |it| {
            visitor.visit_enum(Choice::new(it, node, variant))
        })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Stopped> {
        Err(Stopped)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! { identifier ignored_any }
}
