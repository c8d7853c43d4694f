//! A large map: a tree that shares what hasn't changed with its copies.
//!
//! The entries are in blocks, the leaves of a B+ tree. Every node is behind a reference count. So a
//! copy for a snapshot counts one reference, and a change copies what it touches and a snapshot
//! shares: one block and the short lists of references on the way to it. What a change costs, also
//! the first one after a snapshot, grows with the logarithm of the map.
//!
//! Invariants: map keys ascend; all leaves have the same depth; no node but the root is empty, and
//! none is longer than [`NODE_MAX`]; the map keys below a child are not less than its `from`,
//! unless it is the first, and less than the next child's.

use std::borrow::Borrow;
use std::slice;
use std::sync::Arc;

/// Entries of a block, and children of a node, at most.
const NODE_MAX: usize = 64;

/// Neighbours that have no more together become one.
const JOINED_MAX: usize = NODE_MAX / 2;

pub(super) type Entry<MK, MV> = (MK, MV);

/// A sorted map.
#[derive(Clone)]
pub(super) struct MapTree<MK, MV> {
    root: Arc<Node<MK, MV>>,
    len: usize,
}

#[derive(Clone)]
enum Node<MK, MV> {
    Block(Vec<Entry<MK, MV>>),
    Inner(Vec<Child<MK, MV>>),
}

#[derive(Clone)]
struct Child<MK, MV> {
    /// Of the first child it says nothing.
    from: MK,
    node: Arc<Node<MK, MV>>,
}

/// Position of a map key: where it is, or where it belongs.
#[inline]
pub(super) fn find<MK: Borrow<Q>, MV, Q: Ord + ?Sized>(
    entries: &[Entry<MK, MV>],
    map_key: &Q,
) -> Result<usize, usize> {
    entries.binary_search_by(|entry| entry.0.borrow().cmp(map_key))
}

/// Position of the child below which a map key is, or belongs.
#[inline]
fn find_child<MK: Borrow<Q>, MV, Q: Ord + ?Sized>(
    children: &[Child<MK, MV>],
    map_key: &Q,
) -> usize {
    let after = children.partition_point(|child| child.from.borrow() <= map_key);
    after.saturating_sub(1)
}

impl<MK: Clone + Ord, MV: Clone> MapTree<MK, MV> {
    /// A tree of few entries, in order.
    pub(super) fn new(entries: Vec<Entry<MK, MV>>) -> Self {
        debug_assert!(entries.len() <= NODE_MAX, "the entries fit in a block");
        MapTree {
            len: entries.len(),
            root: Arc::new(Node::Block(entries)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get<Q: Ord + ?Sized>(&self, map_key: &Q) -> Option<&MV>
    where
        MK: Borrow<Q>,
    {
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Inner(children) => node = &children[find_child(children, map_key)].node,
                Node::Block(entries) => {
                    let at = find(entries, map_key).ok()?;
                    return Some(&entries[at].1);
                }
            }
        }
    }

    /// Copies what is shared on the way, even if the map key isn't there.
    pub(super) fn get_mut<Q: Ord + ?Sized>(&mut self, map_key: &Q) -> Option<&mut MV>
    where
        MK: Borrow<Q>,
    {
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Inner(children) => {
                    let at = find_child(children, map_key);
                    node = Arc::make_mut(&mut children[at].node);
                }
                Node::Block(entries) => {
                    let at = find(entries, map_key).ok()?;
                    return Some(&mut entries[at].1);
                }
            }
        }
    }

    /// The value of a map key, made by `make` if there is none. Nodes that are full are split on
    /// the way down, so that there is room for what comes from below.
    pub(super) fn entry_or_insert_with(
        &mut self,
        map_key: MK,
        make: impl FnOnce() -> MV,
    ) -> &mut MV {
        if self.root.is_full_for(&map_key) {
            let lower = Arc::clone(&self.root);
            let from = map_key.clone();
            self.root = Arc::new(Node::Inner(vec![Child { from, node: lower }]));
        }
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Inner(children) => {
                    let mut at = find_child(children, &map_key);
                    if children[at].node.is_full_for(&map_key) {
                        split(children, at, &map_key);
                        at = find_child(children, &map_key);
                    }
                    node = Arc::make_mut(&mut children[at].node);
                }
                Node::Block(entries) => {
                    let at = find(entries, &map_key).unwrap_or_else(|at| {
                        entries.insert(at, (map_key, make()));
                        self.len += 1;
                        at
                    });
                    return &mut entries[at].1;
                }
            }
        }
    }

    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, map_key: &Q) -> Option<MV>
    where
        MK: Borrow<Q>,
    {
        self.get(map_key)?;
        let removed = Arc::make_mut(&mut self.root).remove(map_key)?;
        self.len -= 1;
        self.lower_root();
        Some(removed)
    }

    /// Keeps the entries for which `keep` says so; it may change the values. A block that is shared
    /// stays so if all its values are kept and are the `same` as before.
    pub(super) fn retain(
        &mut self,
        mut keep: impl FnMut(&MK, &mut MV) -> bool,
        same: impl Fn(&MV, &MV) -> bool,
    ) {
        self.len -= Node::retain(&mut self.root, &mut keep, &same);
        self.lower_root();
    }

    /// Leaves out what is above the first node that has more than one child.
    fn lower_root(&mut self) {
        while let Node::Inner(children) = &*self.root {
            self.root = match &children[..] {
                [] => Arc::new(Node::Block(Vec::new())),
                [only] => Arc::clone(&only.node),
                _ => return,
            };
        }
    }

    pub(super) fn iter(&self) -> TreeEntries<'_, MK, MV> {
        let mut entries = TreeEntries::default();
        entries.descend(&self.root);
        entries
    }
}

impl<MK: Clone + Ord, MV: Clone> Node<MK, MV> {
    fn len(&self) -> usize {
        match self {
            Node::Block(entries) => entries.len(),
            Node::Inner(children) => children.len(),
        }
    }

    /// Whether there may be no room for this map key.
    #[inline]
    fn is_full_for(&self, map_key: &MK) -> bool {
        match self {
            Node::Block(entries) => entries.len() >= NODE_MAX && find(entries, map_key).is_err(),
            Node::Inner(children) => children.len() >= NODE_MAX,
        }
    }

    fn remove<Q: Ord + ?Sized>(&mut self, map_key: &Q) -> Option<MV>
    where
        MK: Borrow<Q>,
    {
        match self {
            Node::Block(entries) => {
                let at = find(entries, map_key).ok()?;
                Some(entries.remove(at).1)
            }
            Node::Inner(children) => {
                let at = find_child(children, map_key);
                let removed = Arc::make_mut(&mut children[at].node).remove(map_key);
                if children[at].node.len() <= JOINED_MAX {
                    tidy(children, at);
                }
                removed
            }
        }
    }

    /// Returns how many entries are gone.
    fn retain(
        this: &mut Arc<Self>,
        keep: &mut impl FnMut(&MK, &mut MV) -> bool,
        same: &impl Fn(&MV, &MV) -> bool,
    ) -> usize {
        if let Node::Block(entries) = &**this
            && Arc::strong_count(this) > 1
        {
            let Some(kept) = retained(entries, keep, same) else {
                return 0;
            };
            let gone = entries.len() - kept.len();
            *this = Arc::new(Node::Block(kept));
            return gone;
        }
        match Arc::make_mut(this) {
            Node::Block(entries) => {
                let before = entries.len();
                entries.retain_mut(|(map_key, value)| keep(map_key, value));
                before - entries.len()
            }
            Node::Inner(children) => {
                let nodes = children.iter_mut().map(|child| &mut child.node);
                let gone = nodes.map(|node| Node::retain(node, keep, same)).sum();
                if gone > 0 {
                    (0..children.len()).rev().for_each(|at| tidy(children, at));
                }
                gone
            }
        }
    }
}

/// What is kept of a block that is shared; `None` if that is all, as it was.
fn retained<MK: Clone, MV: Clone>(
    entries: &[Entry<MK, MV>],
    keep: &mut impl FnMut(&MK, &mut MV) -> bool,
    same: &impl Fn(&MV, &MV) -> bool,
) -> Option<Vec<Entry<MK, MV>>> {
    let (mut kept, mut changed) = (Vec::with_capacity(entries.len()), false);
    for (map_key, value) in entries {
        let mut copy = value.clone();
        if keep(map_key, &mut copy) {
            changed = changed || !same(value, &copy);
            kept.push((map_key.clone(), copy));
        } else {
            changed = true;
        }
    }
    changed.then_some(kept)
}

/// Divides the full child at `at` to make room for a map key. One that is full at the end stays as
/// it is, so that maps filled in order have full blocks.
#[cold]
fn split<MK: Clone + Ord, MV: Clone>(children: &mut Vec<Child<MK, MV>>, at: usize, map_key: &MK) {
    let last = at + 1 == children.len();
    let (from, upper) = match Arc::make_mut(&mut children[at].node) {
        Node::Block(entries) => {
            let appended = last && entries.last().is_some_and(|entry| entry.0 < *map_key);
            let middle = match appended {
                true => entries.len(),
                false => entries.len() / 2,
            };
            let upper = entries.split_off(middle);
            let from = upper.first().map_or(map_key, |entry| &entry.0).clone();
            (from, Node::Block(upper))
        }
        Node::Inner(grandchildren) => {
            let appended = last && find_child(grandchildren, map_key) + 1 == grandchildren.len();
            let middle = match appended {
                true => grandchildren.len() - 1,
                false => grandchildren.len() / 2,
            };
            let upper = grandchildren.split_off(middle);
            (upper[0].from.clone(), Node::Inner(upper))
        }
    };
    let node = Arc::new(upper);
    children.insert(at + 1, Child { from, node });
}

/// Removes the child at `at` if it is empty, or joins it with a neighbour if both are short.
fn tidy<MK: Clone + Ord, MV: Clone>(children: &mut Vec<Child<MK, MV>>, at: usize) {
    if children[at].node.len() == 0 {
        children.remove(at);
        return;
    }
    for left in [at.saturating_sub(1), at] {
        let Some([first, second]) = children.get(left..left + 2) else {
            continue;
        };
        if first.node.len() + second.node.len() <= JOINED_MAX {
            let Child { from, node } = children.remove(left + 1);
            let left = Arc::make_mut(&mut children[left].node);
            join(left, from, Arc::unwrap_or_clone(node));
            return;
        }
    }
}

/// Appends the content of a node to its neighbour on the left. Nothing in it is less than `from`.
fn join<MK, MV>(left: &mut Node<MK, MV>, from: MK, right: Node<MK, MV>) {
    match (left, right) {
        (Node::Block(left), Node::Block(right)) => left.extend(right),
        (Node::Inner(left), Node::Inner(mut right)) => {
            if let Some(first) = right.first_mut() {
                // It was the first, of which `from` said nothing.
                first.from = from;
            }
            left.extend(right);
        }
        _ => unreachable!("all leaves have the same depth"),
    }
}

/// The entries of a tree, in order.
pub(super) struct TreeEntries<'a, MK, MV> {
    current: slice::Iter<'a, Entry<MK, MV>>,
    /// What is left of the nodes above, from the root on.
    above: Vec<slice::Iter<'a, Child<MK, MV>>>,
}

impl<MK, MV> Clone for TreeEntries<'_, MK, MV> {
    fn clone(&self) -> Self {
        TreeEntries {
            current: self.current.clone(),
            above: self.above.clone(),
        }
    }
}

impl<MK, MV> Default for TreeEntries<'_, MK, MV> {
    fn default() -> Self {
        TreeEntries::of_slice(&[])
    }
}

impl<'a, MK, MV> TreeEntries<'a, MK, MV> {
    pub(super) fn of_slice(entries: &'a [Entry<MK, MV>]) -> Self {
        TreeEntries {
            current: entries.iter(),
            above: Vec::new(),
        }
    }

    fn descend(&mut self, mut node: &'a Node<MK, MV>) {
        loop {
            match node {
                Node::Block(entries) => {
                    self.current = entries.iter();
                    return;
                }
                Node::Inner(children) => {
                    let mut children = children.iter();
                    let Some(first) = children.next() else { return };
                    self.above.push(children);
                    node = &first.node;
                }
            }
        }
    }

    #[inline(never)]
    fn next_block(&mut self) -> bool {
        while let Some(children) = self.above.last_mut() {
            if let Some(child) = children.next() {
                self.descend(&child.node);
                return true;
            }
            self.above.pop();
        }
        false
    }
}

impl<'a, MK, MV> Iterator for TreeEntries<'a, MK, MV> {
    type Item = &'a Entry<MK, MV>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.current.next() {
                return Some(entry);
            }
            if !self.next_block() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<MK: Clone + Ord, MV: Clone> MapTree<MK, MV> {
        /// Checks all that the module's head promises.
        pub(in super::super) fn check(&self) {
            let mut depths = Vec::new();
            check_node(&self.root, (None, None), 0, &mut depths);
            depths.dedup();
            assert_eq!(depths.len(), 1, "all leaves have the same depth");
            assert!(!matches!(&*self.root, Node::Inner(children) if children.len() < 2));
        }

        fn blocks(&self) -> Vec<*const Entry<MK, MV>> {
            let (mut blocks, mut nodes) = (Vec::new(), vec![&self.root]);
            while let Some(node) = nodes.pop() {
                match &**node {
                    Node::Block(entries) => blocks.push(entries.as_ptr()),
                    Node::Inner(children) => nodes.extend(children.iter().map(|child| &child.node)),
                }
            }
            blocks.sort_unstable();
            blocks
        }

        /// How many blocks aren't shared with `copy`.
        fn copied(&self, copy: &Self) -> usize {
            let shared = copy.blocks();
            let is_own = |block: &&*const _| shared.binary_search(block).is_err();
            self.blocks().iter().filter(is_own).count()
        }
    }

    fn check_node<MK: Clone + Ord, MV: Clone>(
        node: &Node<MK, MV>,
        (from, until): (Option<&MK>, Option<&MK>),
        depth: usize,
        depths: &mut Vec<usize>,
    ) {
        assert!(node.len() <= NODE_MAX && (depth == 0 || node.len() > 0));
        match node {
            Node::Block(entries) => {
                depths.push(depth);
                assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0));
                let within = |key: &MK| {
                    from.is_none_or(|from| from <= key) && until.is_none_or(|until| key < until)
                };
                assert!(entries.iter().all(|(key, _)| within(key)));
            }
            Node::Inner(children) => {
                for (at, child) in children.iter().enumerate() {
                    let from = if at == 0 { from } else { Some(&child.from) };
                    let until = children.get(at + 1).map(|next| &next.from).or(until);
                    check_node(&child.node, (from, until), depth + 1, depths);
                }
            }
        }
    }

    fn filled(entries: u32) -> MapTree<u32, u32> {
        let mut tree = MapTree::new(Vec::new());
        for number in 0..entries {
            *tree.entry_or_insert_with(2 * number, || 0) = number;
        }
        tree.check();
        tree
    }

    #[test]
    fn maps_filled_in_order_have_full_blocks() {
        let mut tree = filled(6400);
        assert_eq!(tree.blocks().len(), 100);
        // Setting what is there moves nothing.
        for number in 0..6400 {
            *tree.entry_or_insert_with(2 * number, || unreachable!("it is there")) += 1;
        }
        assert_eq!(tree.blocks().len(), 100);
    }

    // KS-08: what a change copies is a block or two, however large the map is.
    #[test]
    fn a_change_copies_what_it_touches() {
        let mut tree = filled(300_000);
        let copy = tree.clone();
        assert_eq!(tree.copied(&copy), 0);
        *tree.get_mut(&40_000).unwrap() += 1;
        assert_eq!(tree.copied(&copy), 1);
        *tree.get_mut(&40_002).unwrap() += 1;
        assert_eq!(tree.copied(&copy), 1);
        // A full block is divided in two.
        tree.entry_or_insert_with(90_001, || 5);
        assert_eq!(tree.copied(&copy), 3);
        assert_eq!(tree.remove(&500_000), Some(250_000));
        assert_eq!(tree.copied(&copy), 4);
        assert_eq!(tree.remove(&500_001), None);
        assert_eq!((tree.len(), copy.len()), (300_000, 300_000));
        assert_eq!(copy.get(&40_000), Some(&20_000));
        tree.check();
        copy.check();
    }

    #[test]
    fn what_is_kept_is_not_copied() {
        let mut tree = filled(100_000);
        let copy = tree.clone();
        let same = |left: &u32, right: &u32| left == right;
        tree.retain(|_, _| true, same);
        assert_eq!((tree.copied(&copy), tree.len()), (0, 100_000));
        tree.retain(|key, _| *key != 40_000 && *key != 41_000, same);
        assert_eq!((tree.copied(&copy), tree.len()), (2, 99_998));
        let add = |key: &u32, value: &mut u32| {
            *value += u32::from(*key == 90_000);
            true
        };
        tree.retain(add, same);
        assert_eq!((tree.copied(&copy), tree.len()), (3, 99_998));
        let values = (tree.get(&90_000), copy.get(&90_000));
        assert_eq!(values, (Some(&45_001), Some(&45_000)));
        tree.check();
        tree.retain(|key, _| *key < 10, same);
        assert!(tree.iter().map(|entry| entry.0).eq([0, 2, 4, 6, 8]));
        tree.check();
        tree.retain(|_, _| false, same);
        assert_eq!((tree.len(), tree.iter().count()), (0, 0));
        *tree.entry_or_insert_with(7, || 7) += 1;
        assert_eq!((tree.get(&7), copy.len()), (Some(&8), 100_000));
        tree.check();
        copy.check();
    }

    /// Emptied from either end and from within, a tree becomes low again.
    #[test]
    fn removal_joins_blocks() {
        for order in 0..3u32 {
            let mut tree = filled(30_000);
            for step in 0..29_990 {
                let number = match order {
                    0 => step,
                    1 => 29_999 - step,
                    _ => (step * 7919) % 30_000,
                };
                assert_eq!(tree.remove(&(2 * number)), Some(number));
                if step % 1000 == 0 {
                    tree.check();
                }
            }
            tree.check();
            assert_eq!((tree.len(), tree.blocks().len()), (10, 1), "order {order}");
            assert!(matches!(&*tree.root, Node::Block(_)));
        }
    }
}
