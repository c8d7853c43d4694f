//! What visitors see of a node with parts: its elements, entries or variant.

use serde::de::value::U32Deserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};

use super::graph::{Contents, Node, NodeId};
use super::tracer::{Stopped, Tracer};

/// Elements of a sequence, fields of a struct, or key and value of a map.
pub(super) struct Elements<'p, 'g> {
    tracer: Tracer<'p, 'g>,
    parts: Vec<NodeId>,
    next: usize,
    /// Whether all parts are in one slot: they are part 0 to a route.
    alike: bool,
}

impl<'p, 'g> Elements<'p, 'g> {
    pub(super) fn new(tracer: Tracer<'p, 'g>, parts: Vec<NodeId>) -> Self {
        let alike = parts.len() > 1 && parts[0] == parts[1];
        Elements {
            tracer,
            parts,
            next: 0,
            alike,
        }
    }

    fn trace<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stopped> {
        let at = self.next;
        self.next += 1;
        let slot = *self.parts.get(at).ok_or(Stopped)?;
        let at = if self.alike { 0 } else { at };
        let value = seed.deserialize(self.tracer.part(at, slot)?)?;
        self.tracer.leave_part();
        Ok(value)
    }

    fn is_at_end(&self) -> bool {
        self.next >= self.parts.len()
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_, '_> {
    type Error = Stopped;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Stopped> {
        match self.is_at_end() {
            true => Ok(None),
            false => self.trace(seed).map(Some),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.parts.len().saturating_sub(self.next))
    }
}

impl<'de> de::MapAccess<'de> for Elements<'_, '_> {
    type Error = Stopped;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Stopped> {
        match self.is_at_end() {
            true => Ok(None),
            false => self.trace(seed).map(Some),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stopped> {
        self.trace(seed)
    }
}

/// The chosen variant of an enum.
pub(super) struct Choice<'p, 'g> {
    tracer: Tracer<'p, 'g>,
    node: NodeId,
    variant: usize,
}

impl<'p, 'g> Choice<'p, 'g> {
    pub(super) fn new(tracer: Tracer<'p, 'g>, node: NodeId, variant: usize) -> Self {
        Choice {
            tracer,
            node,
            variant,
        }
    }

    /// Notes what the variant holds, unless that is known. The slots of its parts.
    fn contents(
        &mut self,
        count: usize,
        make: impl FnOnce(&[NodeId]) -> Contents,
    ) -> Result<Vec<NodeId>, Stopped> {
        let graph = &mut *self.tracer.pass.graph;
        let Node::Enum(it) = &graph.nodes[self.node] else {
            return Err(Stopped);
        };
        let known = &it.variants[self.variant].contents;
        if !matches!(known, Contents::Unknown) {
            let parts = known.parts();
            return if parts.len() == count {
                Ok(parts)
            } else {
                Err(Stopped)
            };
        }
        let parts = graph.add_many(count);
        if let Node::Enum(it) = &mut graph.nodes[self.node] {
            it.variants[self.variant].contents = make(&parts);
        }
        Ok(parts)
    }
}

impl<'de> de::EnumAccess<'de> for Choice<'_, '_> {
    type Error = Stopped;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Stopped> {
        let index = u32::try_from(self.variant).map_err(|_| Stopped)?;
        let index: U32Deserializer<Stopped> = index.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Choice<'_, '_> {
    type Error = Stopped;

    fn unit_variant(mut self) -> Result<(), Stopped> {
        self.contents(0, |_| Contents::Unit).map(|_| ())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        mut self,
        seed: S,
    ) -> Result<S::Value, Stopped> {
        let parts = self.contents(1, |parts| Contents::Tuple(parts.to_vec()))?;
        Elements::new(self.tracer, parts).trace(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(
        mut self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        let parts = self.contents(length, |parts| Contents::Tuple(parts.to_vec()))?;
        visitor.visit_seq(Elements::new(self.tracer, parts))
    }

    fn struct_variant<V: Visitor<'de>>(
        mut self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        let named = |parts: &[NodeId]| {
            let parts = parts.iter().copied();
            Contents::Struct(fields.iter().copied().zip(parts).collect())
        };
        let parts = self.contents(fields.len(), named)?;
        visitor.visit_seq(Elements::new(self.tracer, parts))
    }
}
