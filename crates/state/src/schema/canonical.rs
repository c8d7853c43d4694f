//! From what was traced to the one schema that all types of the same shape have.
//!
//! Types are told apart while they are traced, so the graph holds some shapes several times, and
//! where a recursive type begins depends on the type. So nodes that can't be told apart by any
//! path of questions are put into one class (the coarsest partition in which classes of parts
//! agree, as in minimising an automaton), and the classes are written down from the root on, in the
//! order in which the text reaches them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::trace::{Contents, Graph, Node, NodeId};
use super::{Content, Field, Plain, Schema, Shape, Variant};

/// The schema of the type at `root`.
pub(super) fn schema(graph: &Graph, root: NodeId) -> Schema {
    let nodes = reachable(graph, root);
    let class_of = classes(&nodes);
    let mut of_class = vec![None; nodes.len()];
    for (node, class) in class_of.iter().enumerate() {
        of_class[*class].get_or_insert(node);
    }
    let classes: Vec<Labelled> = of_class
        .into_iter()
        .flatten()
        .map(|node| nodes[node].with_parts_in(&class_of))
        .collect();
    let root = class_of[0];
    Writer {
        is_defined: defined(&classes, root),
        classes,
        numbers: BTreeMap::new(),
        queue: Vec::new(),
    }
    .schema(root)
}

/// What a node is, apart from its parts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Plain(Plain),
    Option,
    Sequence,
    Array(usize),
    Map,
    Tuple(usize),
    Struct(Vec<&'static str>),
    Enum(Vec<(&'static str, ContentLabel)>),
    Opaque,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ContentLabel {
    Opaque,
    Unit,
    Tuple(usize),
    Struct(Vec<&'static str>),
}

struct Labelled {
    label: Label,
    /// All parts, of all variants in a row.
    parts: Vec<usize>,
}

impl Labelled {
    /// The same with classes as parts. Tuples of equal parts are arrays.
    fn with_parts_in(&self, class_of: &[usize]) -> Labelled {
        let mut label = self.label.clone();
        let mut parts: Vec<usize> = self.parts.iter().map(|part| class_of[*part]).collect();
        if let Label::Tuple(length) = label
            && length > 1
            && parts.iter().all(|part| *part == parts[0])
        {
            label = Label::Array(length);
            parts.truncate(1);
        }
        Labelled { label, parts }
    }
}

/// The nodes that are reached from `root`, which comes first; parts are positions among them.
fn reachable(graph: &Graph, root: NodeId) -> Vec<Labelled> {
    let mut order = vec![graph.resolve(root)];
    let mut positions = BTreeMap::from([(order[0], 0)]);
    let mut nodes = Vec::new();
    let mut next = 0;
    while let Some(&node) = order.get(next) {
        next += 1;
        let (label, parts) = labelled(&graph.nodes[node]);
        let parts = parts.into_iter().map(|part| {
            let part = graph.resolve(part);
            *positions.entry(part).or_insert_with(|| {
                order.push(part);
                order.len() - 1
            })
        });
        let parts = parts.collect();
        nodes.push(Labelled { label, parts });
    }
    nodes
}

fn labelled(node: &Node) -> (Label, Vec<NodeId>) {
    match node {
        Node::Plain(plain) => (Label::Plain(*plain), Vec::new()),
        Node::Several(several) => {
            let label = match several.question {
                "option" => Label::Option,
                "sequence" => Label::Sequence,
                _ => Label::Map,
            };
            (label, several.parts.clone())
        }
        Node::Tuple(parts) if parts.is_empty() => (Label::Plain(Plain::Unit), Vec::new()),
        Node::Tuple(parts) => (Label::Tuple(parts.len()), parts.clone()),
        Node::Array(part, length) => (Label::Array(*length), vec![*part]),
        Node::Struct(fields) => {
            let (names, parts) = fields.iter().copied().unzip();
            (Label::Struct(names), parts)
        }
        Node::Enum(it) => {
            let labels = it
                .variants
                .iter()
                .map(|it| (it.name, content_label(&it.contents)));
            let parts = it.variants.iter().flat_map(|it| it.contents.parts());
            (Label::Enum(labels.collect()), parts.collect())
        }
        Node::Unknown | Node::Same(_) | Node::Opaque => (Label::Opaque, Vec::new()),
    }
}

fn content_label(contents: &Contents) -> ContentLabel {
    match contents {
        Contents::Unknown => ContentLabel::Opaque,
        Contents::Unit => ContentLabel::Unit,
        Contents::Tuple(parts) => ContentLabel::Tuple(parts.len()),
        Contents::Struct(fields) => {
            ContentLabel::Struct(fields.iter().map(|(name, _)| *name).collect())
        }
    }
}

/// The class of each node.
fn classes(nodes: &[Labelled]) -> Vec<usize> {
    let (mut class_of, mut count) = numbered(nodes.iter().map(|node| &node.label));
    loop {
        let refined = nodes.iter().enumerate().map(|(at, node)| {
            let parts: Vec<usize> = node.parts.iter().map(|part| class_of[*part]).collect();
            (class_of[at], parts)
        });
        let (refined, refined_count) = numbered(refined);
        if refined_count == count {
            return class_of;
        }
        (class_of, count) = (refined, refined_count);
    }
}

/// Numbers items in the order in which they first come; how many different ones there are.
fn numbered<T: Ord>(items: impl Iterator<Item = T>) -> (Vec<usize>, usize) {
    let mut numbers = BTreeMap::new();
    let numbered = items
        .map(|item| {
            let next = numbers.len();
            *numbers.entry(item).or_insert(next)
        })
        .collect();
    (numbered, numbers.len())
}

/// Which classes are definitions.
fn defined(classes: &[Labelled], root: usize) -> Vec<bool> {
    let mut references = vec![0usize; classes.len()];
    references[root] += 1;
    for part in classes.iter().flat_map(|class| &class.parts) {
        references[*part] += 1;
    }
    let is_defined = |at: usize| match classes[at].label {
        _ if references[at] < 2 => false,
        Label::Struct(_) | Label::Enum(_) | Label::Tuple(_) | Label::Map => true,
        Label::Plain(_) | Label::Opaque => false,
        Label::Option | Label::Sequence | Label::Array(_) => contains_itself(classes, at),
    };
    (0..classes.len()).map(is_defined).collect()
}

fn contains_itself(classes: &[Labelled], class: usize) -> bool {
    let mut seen = vec![false; classes.len()];
    let mut open = classes[class].parts.clone();
    while let Some(part) = open.pop() {
        if part == class {
            return true;
        }
        if !std::mem::replace(&mut seen[part], true) {
            open.extend(&classes[part].parts);
        }
    }
    false
}

struct Writer {
    classes: Vec<Labelled>,
    is_defined: Vec<bool>,
    /// Numbers of the definitions that were referred to.
    numbers: BTreeMap<usize, u32>,
    /// Their classes, in the order of their numbers.
    queue: Vec<usize>,
}

impl Writer {
    fn schema(mut self, root: usize) -> Schema {
        let root = self.reference(root);
        let mut definitions = Vec::new();
        while let Some(&class) = self.queue.get(definitions.len()) {
            definitions.push(self.body(class));
        }
        Schema { root, definitions }
    }

    fn reference(&mut self, class: usize) -> Shape {
        if !self.is_defined[class] {
            return self.body(class);
        }
        let next = u32::try_from(self.queue.len()).expect("fewer than 2^32 types");
        let number = *self.numbers.entry(class).or_insert(next);
        if number == next {
            self.queue.push(class);
        }
        Shape::Defined(number)
    }

    fn body(&mut self, class: usize) -> Shape {
        let label = self.classes[class].label.clone();
        let mut parts = self.classes[class].parts.clone().into_iter();
        let mut part = || parts.next().expect("a label knows its parts");
        match label {
            Label::Plain(plain) => Shape::Plain(plain),
            Label::Option => Shape::Option(Box::new(self.reference(part()))),
            Label::Sequence => Shape::Sequence(Box::new(self.reference(part()))),
            Label::Array(length) => {
                let length = u32::try_from(length).unwrap_or(u32::MAX);
                Shape::Array(Box::new(self.reference(part())), length)
            }
            Label::Map => {
                let key = Box::new(self.reference(part()));
                Shape::Map(key, Box::new(self.reference(part())))
            }
            Label::Tuple(_) => Shape::Tuple(parts.map(|part| self.reference(part)).collect()),
            Label::Struct(names) => Shape::Struct(self.fields(names, &mut parts)),
            Label::Enum(variants) => {
                let variants = variants.into_iter().map(|(name, content)| Variant {
                    name: Arc::from(name),
                    content: self.content(content, &mut parts),
                });
                Shape::Enum(variants.collect())
            }
            Label::Opaque => Shape::Opaque,
        }
    }

    fn content(&mut self, label: ContentLabel, parts: &mut impl Iterator<Item = usize>) -> Content {
        match label {
            ContentLabel::Unit => Content::Unit,
            ContentLabel::Opaque => Content::Tuple(vec![Shape::Opaque]),
            ContentLabel::Tuple(length) => {
                let parts = parts.take(length);
                Content::Tuple(parts.map(|part| self.reference(part)).collect())
            }
            ContentLabel::Struct(names) => Content::Struct(self.fields(names, parts)),
        }
    }

    fn fields(
        &mut self,
        names: Vec<&'static str>,
        parts: &mut impl Iterator<Item = usize>,
    ) -> Vec<Field> {
        let fields = names.into_iter().zip(parts);
        fields
            .map(|(name, part)| Field {
                name: Arc::from(name),
                shape: self.reference(part),
            })
            .collect()
    }
}
