//! Functions that reducing and aggregating state apply to what they hold.

use std::marker::PhantomData;

use crate::descriptor::StateValue;

/// Combines values of one type into one. Implemented for closures.
///
/// The result must not depend on how a sequence of values is grouped, or merged namespaces differ
/// from ones that were never apart.
pub trait Reduce<T>: Clone + 'static {
    /// Combines `value` into `reduced`, to which it comes last.
    fn reduce(&self, reduced: &mut T, value: T);
}

/// A reducing function that captures nothing, whose type can be named.
pub type ReduceFn<T> = fn(&mut T, T);

impl<T, F: Fn(&mut T, T) + Clone + 'static> Reduce<T> for F {
    #[inline]
    fn reduce(&self, reduced: &mut T, value: T) {
        self(reduced, value);
    }
}

/// Accumulates values of one type in another, from which a result of a third is taken.
///
/// ```
/// use tidegate_state::{Aggregate, MergeAggregate};
///
/// #[derive(Clone)]
/// struct Mean;
///
/// impl Aggregate for Mean {
///     type In = f64;
///     type Acc = (f64, u64);
///     type Out = f64;
///
///     fn create(&self) -> (f64, u64) {
///         (0.0, 0)
///     }
///
///     fn add(&self, (sum, count): &mut (f64, u64), value: f64) {
///         *sum += value;
///         *count += 1;
///     }
///
///     fn get_result(&self, (sum, count): &(f64, u64)) -> f64 {
///         sum / *count as f64
///     }
/// }
///
/// impl MergeAggregate for Mean {
///     fn merge(&self, into: &mut (f64, u64), other: (f64, u64)) {
///         into.0 += other.0;
///         into.1 += other.1;
///     }
/// }
/// # let mut acc = Mean.create();
/// # Mean.add(&mut acc, 1.0);
/// # Mean.merge(&mut acc, (5.0, 1));
/// # assert_eq!(Mean.get_result(&acc), 3.0);
/// ```
pub trait Aggregate: Clone + 'static {
    /// What is added.
    type In;
    /// What is kept, and is part of snapshots.
    type Acc: StateValue;
    /// What is read.
    type Out;

    /// An accumulator to which nothing was added. Each key gets one of its own.
    fn create(&self) -> Self::Acc;

    /// Adds a value.
    fn add(&self, accumulator: &mut Self::Acc, value: Self::In);

    /// What the values come to.
    fn get_result(&self, accumulator: &Self::Acc) -> Self::Out;
}

/// An aggregate whose accumulators can be merged, as session windows need it.
pub trait MergeAggregate: Aggregate {
    /// Merges `other` into `into`, to whose values those of `other` come last.
    fn merge(&self, into: &mut Self::Acc, other: Self::Acc);
}

/// Folds values into what starts as a copy of an initial value.
#[derive(Debug)]
pub struct Fold<T, Acc, F = fn(&mut Acc, T)> {
    initial: Acc,
    fold: F,
    value: PhantomData<fn(T)>,
}

impl<T, Acc, F> Fold<T, Acc, F> {
    /// Folds with `fold`, from `initial`.
    pub fn new(initial: Acc, fold: F) -> Self {
        Fold {
            initial,
            fold,
            value: PhantomData,
        }
    }
}

impl<T, Acc: Clone, F: Clone> Clone for Fold<T, Acc, F> {
    fn clone(&self) -> Self {
        Fold::new(self.initial.clone(), self.fold.clone())
    }
}

impl<T, Acc, F> Aggregate for Fold<T, Acc, F>
where
    T: 'static,
    Acc: StateValue,
    F: Fn(&mut Acc, T) + Clone + 'static,
{
    type In = T;
    type Acc = Acc;
    type Out = Acc;

    fn create(&self) -> Acc {
        self.initial.clone()
    }

    #[inline]
    fn add(&self, accumulator: &mut Acc, value: T) {
        (self.fold)(accumulator, value);
    }

    fn get_result(&self, accumulator: &Acc) -> Acc {
        accumulator.clone()
    }
}
