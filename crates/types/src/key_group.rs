//! Key groups: the unit in which keyed state moves between subtasks.
//!
//! Every key belongs to one of `max parallelism` key groups; every subtask owns a contiguous,
//! inclusive range of them. The formulas are those of Flink's `KeyGroupRangeAssignment`; the
//! [hash](crate::hash_bytes) is that of the key's canonical encoding, which is the same on every
//! platform and compiler.

use std::fmt;

/// Index of a key group, from 0 to max parallelism − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyGroup(pub u16);

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A parallelism that key groups cannot serve.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyGroupError {
    /// Max parallelism is outside 1 ..= 32768.
    #[error(
        "max parallelism `{given}` is not between 1 and {}",
        MaxParallelism::LIMIT
    )]
    MaxParallelism {
        /// What was asked for.
        given: u32,
    },
    /// Parallelism is zero or above max parallelism.
    #[error("parallelism `{parallelism}` is not between 1 and the max parallelism `{max}`")]
    Parallelism {
        /// What was asked for.
        parallelism: u32,
        /// The number of key groups there are.
        max: u32,
    },
}

/// Number of key groups of an operator: the largest parallelism it can ever be given without
/// losing the mapping of keys to state. Between 1 and 32768.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaxParallelism(u32);

impl MaxParallelism {
    /// The largest possible number of key groups.
    pub const LIMIT: u32 = 1 << 15;
    /// The smallest number chosen by [`derive`](Self::derive).
    pub const DERIVED_MIN: u32 = 128;

    /// Checks `count`.
    ///
    /// # Errors
    /// [`KeyGroupError::MaxParallelism`] if it is 0 or above [`LIMIT`](Self::LIMIT).
    pub fn new(count: u32) -> Result<Self, KeyGroupError> {
        match count {
            1..=Self::LIMIT => Ok(MaxParallelism(count)),
            _ => Err(KeyGroupError::MaxParallelism { given: count }),
        }
    }

    /// What an operator gets whose user did not choose: the power of two at or above one and a
    /// half times its parallelism, within 128 ..= 32768 (Flink's rule).
    pub fn derive(parallelism: u32) -> Self {
        let wanted = parallelism.saturating_add(parallelism / 2).min(Self::LIMIT);
        MaxParallelism(
            wanted
                .next_power_of_two()
                .clamp(Self::DERIVED_MIN, Self::LIMIT),
        )
    }

    /// The number of key groups.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The key group of a key with this hash. Always below max parallelism.
    #[inline]
    pub fn key_group(self, hash: u64) -> KeyGroup {
        // Multiplying the upper half by the count maps it evenly onto 0 .. count, without dividing.
        let upper = hash >> 32;
        KeyGroup(((upper * u64::from(self.0)) >> 32) as u16)
    }

    /// The subtask that owns `group` when there are `parallelism` subtasks.
    #[inline]
    pub fn owner(self, group: KeyGroup, parallelism: u32) -> u32 {
        (u64::from(group.0) * u64::from(parallelism) / u64::from(self.0)) as u32
    }

    /// The key groups of subtask `index` of `parallelism`.
    ///
    /// # Errors
    /// [`KeyGroupError::Parallelism`] if `parallelism` is 0 or above the number of key groups.
    ///
    /// # Panics
    /// If `index` is not below `parallelism`.
    pub fn range(self, index: u32, parallelism: u32) -> Result<KeyGroupRange, KeyGroupError> {
        if parallelism == 0 || parallelism > self.0 {
            return Err(KeyGroupError::Parallelism {
                parallelism,
                max: self.0,
            });
        }
        assert!(
            index < parallelism,
            "subtask index {index} of {parallelism}"
        );
        let (index, parallelism, max) =
            (u64::from(index), u64::from(parallelism), u64::from(self.0));
        let start = (index * max).div_ceil(parallelism);
        let end = ((index + 1) * max - 1) / parallelism;
        Ok(KeyGroupRange {
            start: start as u16,
            end: end as u16,
        })
    }
}

impl fmt::Display for MaxParallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A contiguous range of key groups, both ends included. Displays as `0..=63`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyGroupRange {
    /// First key group of the range.
    pub start: u16,
    /// Last key group of the range; at least `start`.
    pub end: u16,
}

impl KeyGroupRange {
    /// Whether `group` lies in the range.
    pub fn contains(self, group: KeyGroup) -> bool {
        (self.start..=self.end).contains(&group.0)
    }

    /// What two ranges share, or `None` if they are disjoint.
    pub fn intersection(self, other: KeyGroupRange) -> Option<KeyGroupRange> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start <= end).then_some(KeyGroupRange { start, end })
    }

    /// Number of key groups in the range; at least 1.
    pub fn count(self) -> usize {
        usize::from(self.end - self.start) + 1
    }

    /// The key groups in order.
    pub fn iter(self) -> impl Iterator<Item = KeyGroup> {
        (self.start..=self.end).map(KeyGroup)
    }
}

impl fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // KG-04
    #[test]
    fn derived_max_parallelism() {
        assert_eq!(MaxParallelism::derive(1).get(), 128);
        assert_eq!(MaxParallelism::derive(100).get(), 256);
        assert_eq!(MaxParallelism::derive(u32::MAX).get(), 32768);
    }

    // KG-05
    #[test]
    fn parallelism_out_of_bounds_is_an_error() {
        let max = MaxParallelism::new(4).unwrap();
        assert_eq!(
            max.range(0, 5),
            Err(KeyGroupError::Parallelism {
                parallelism: 5,
                max: 4
            })
        );
        assert_eq!(
            max.range(0, 0),
            Err(KeyGroupError::Parallelism {
                parallelism: 0,
                max: 4
            })
        );
        assert!(MaxParallelism::new(0).is_err());
        assert!(MaxParallelism::new(32769).is_err());
    }

    // KG-06
    #[test]
    fn intersections() {
        let range = |start, end| KeyGroupRange { start, end };
        assert_eq!(range(0, 5).intersection(range(6, 9)), None);
        assert_eq!(range(0, 5).intersection(range(5, 9)), Some(range(5, 5)));
    }

    proptest! {
        // KG-02, KG-03, RS-16, BC-46: owners and ranges agree for every group, and cover all once.
        #[test]
        fn owner_and_ranges_agree(max in 1u32..=32768, share in 1u32..=32768) {
            let parallelism = 1 + (share - 1) % max;
            let max = MaxParallelism::new(max).unwrap();
            let mut next = 0u32;
            for index in 0..parallelism {
                let range = max.range(index, parallelism).unwrap();
                prop_assert_eq!(u32::from(range.start), next);
                for group in range.iter() {
                    prop_assert_eq!(max.owner(group, parallelism), index);
                }
                next = u32::from(range.end) + 1;
            }
            prop_assert_eq!(next, max.get());
        }

        // KG-02
        #[test]
        fn every_hash_has_a_group(max in 1u32..=32768, hash: u64) {
            let max = MaxParallelism::new(max).unwrap();
            prop_assert!(u32::from(max.key_group(hash).0) < max.get());
            prop_assert!(u32::from(max.key_group(u64::MAX).0) < max.get());
        }
    }
}
