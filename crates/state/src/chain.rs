//! When a chain of pieces has become long enough to begin anew.
//!
//! A restore reads a full piece and then all changes to it, and all of them stay on disk. Both are
//! bounded by beginning anew with a full piece, before changes outweigh what they change.

/// Decides whether the next snapshot may rest on the pieces there are.
///
/// ```
/// use tidegate_state::ChainPolicy;
///
/// let policy = ChainPolicy::default();
/// assert!(!policy.may_grow([]), "there is nothing to rest on");
/// assert!(policy.may_grow([1000, 300, 700]));
/// assert!(!policy.may_grow([1000, 300, 701]), "changes outweigh the full piece");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainPolicy {
    /// Pieces of a chain at most, the full one among them. More of them make checkpoints smaller on
    /// average, and a restore slower. Default: 10.
    pub pieces_max: usize,
}

impl Default for ChainPolicy {
    fn default() -> Self {
        ChainPolicy { pieces_max: 10 }
    }
}

impl ChainPolicy {
    /// Whether one more piece may be added to a chain whose pieces have these lengths in bytes,
    /// oldest first: it is not too long yet, and its changes are not more than the full piece. So a
    /// restore reads at most twice the full piece and one piece of changes, which is no larger than
    /// the state itself.
    pub fn may_grow(&self, piece_bytes: impl IntoIterator<Item = u64>) -> bool {
        let mut pieces = piece_bytes.into_iter();
        let Some(full) = pieces.next() else {
            return false;
        };
        let (count, changes) = pieces.fold((1, 0u64), |(count, sum), bytes| {
            (count + 1, sum.saturating_add(bytes))
        });
        count < self.pieces_max && changes <= full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_bounded_in_number() {
        let policy = ChainPolicy::default();
        assert!(policy.may_grow([1 << 20, 1, 1, 1, 1, 1, 1, 1, 1]));
        assert!(!policy.may_grow([1 << 20, 1, 1, 1, 1, 1, 1, 1, 1, 1]));
        assert!(!ChainPolicy { pieces_max: 1 }.may_grow([1 << 20]));
    }

    #[test]
    fn a_chain_is_bounded_in_bytes() {
        let policy = ChainPolicy::default();
        assert!(policy.may_grow([0]));
        assert!(policy.may_grow([500, 500]));
        assert!(!policy.may_grow([500, 499, 2]));
        assert!(!policy.may_grow([u64::MAX - 1, u64::MAX, 5]));
    }
}
