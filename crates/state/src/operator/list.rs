//! Split and union lists.

use std::cell::RefCell;
use std::rc::Rc;

use super::backend::BoundOperatorState;
use crate::descriptor::StateValue;
use crate::error::LoadError;
use crate::format::{decode_value, encode_value};

/// Handle of a list of the subtask's own. Clones refer to the same list.
///
/// # Panics
/// Accessors panic if they are called for the same list from within a closure given to one of them.
pub struct OperatorListState<T> {
    elements: Rc<RefCell<Vec<T>>>,
}

impl<T> Clone for OperatorListState<T> {
    fn clone(&self) -> Self {
        OperatorListState {
            elements: Rc::clone(&self.elements),
        }
    }
}

impl<T> Default for OperatorListState<T> {
    fn default() -> Self {
        OperatorListState {
            elements: Rc::default(),
        }
    }
}

impl<T: StateValue> OperatorListState<T> {
    /// A copy of all elements.
    pub fn get(&self) -> Vec<T> {
        self.elements.borrow().clone()
    }

    /// Calls `read` with the elements.
    pub fn with<R>(&self, read: impl FnOnce(&[T]) -> R) -> R {
        read(&self.elements.borrow())
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.elements.borrow().len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.elements.borrow().is_empty()
    }

    /// Appends an element.
    pub fn add(&self, element: T) {
        self.elements.borrow_mut().push(element);
    }

    /// Appends elements.
    pub fn add_all(&self, elements: impl IntoIterator<Item = T>) {
        self.elements.borrow_mut().extend(elements);
    }

    /// Replaces all elements.
    pub fn update(&self, elements: Vec<T>) {
        *self.elements.borrow_mut() = elements;
    }

    /// Removes all elements.
    pub fn clear(&self) {
        self.elements.borrow_mut().clear();
    }
}

impl<T: StateValue> BoundOperatorState for OperatorListState<T> {
    fn encode(&self) -> postcard::Result<Vec<Vec<u8>>> {
        let elements = self.elements.borrow();
        let encode = |element: &T| {
            let mut out = Vec::new();
            encode_value(element, &mut out).map(|()| out)
        };
        elements.iter().map(encode).collect()
    }

    fn load(&self, elements: &[Vec<u8>]) -> Result<(), LoadError> {
        let decoded = (0..).zip(elements);
        let decoded = decoded.map(|(at, element)| decode_value(at, element));
        *self.elements.borrow_mut() = decoded.collect::<Result<_, _>>()?;
        Ok(())
    }
}
