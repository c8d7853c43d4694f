//! All operator state of one subtask.

use std::any::Any;
use std::collections::BTreeMap;

use tidegate_types::{ListState, Redistribution};

use super::broadcast::BroadcastState;
use super::list::OperatorListState;
use super::typed::{OperatorStateType, typed_state};
use crate::descriptor::{ListStateDescriptor, MapStateDescriptor, StateValue};
use crate::error::{AlreadyBound, LoadError, RestoredStateMismatch, StateError};
use crate::key::{StateKey, schema_of};
use crate::schema::value_schema;

/// What the backend does with each of its bound states.
pub(super) trait BoundOperatorState: Any {
    /// The elements of a snapshot.
    fn encode(&self) -> postcard::Result<Vec<Vec<u8>>>;
    /// Replaces the content by restored elements.
    fn load(&self, elements: &[Vec<u8>]) -> Result<(), LoadError>;
}

enum Slot {
    Bound(OperatorStateType, Box<dyn BoundOperatorState>),
    /// Nobody has bound it yet; it stays in snapshots as it was read.
    Restored(OperatorStateType, Vec<Vec<u8>>),
}

/// Operator state of one subtask: lists and broadcast maps, by name.
///
/// ```
/// use tidegate_state::{ListStateDescriptor, OperatorStateBackend};
///
/// let mut backend = OperatorStateBackend::new(0);
/// let pending = backend.split_list(&ListStateDescriptor::<String>::new("pending"))?;
/// pending.add("file-1".to_owned());
/// let saved = backend.snapshot()?;
///
/// let mut restored = OperatorStateBackend::restore(0, &saved)?;
/// let pending = restored.split_list(&ListStateDescriptor::<String>::new("pending"))?;
/// assert_eq!(pending.get(), ["file-1"]);
/// # Ok::<(), tidegate_state::StateError>(())
/// ```
pub struct OperatorStateBackend {
    subtask_index: u32,
    states: BTreeMap<String, Slot>,
}

impl OperatorStateBackend {
    /// An empty backend for the subtask with this index.
    pub fn new(subtask_index: u32) -> Self {
        OperatorStateBackend {
            subtask_index,
            states: BTreeMap::new(),
        }
    }

    /// A backend with what a checkpoint has for the subtask. `lists` are those that
    /// [`snapshot`](Self::snapshot) gave, dealt out as each list's redistribution says; lists that
    /// the operator keeps by other means must not be among them, or they are saved twice.
    ///
    /// States that nobody binds stay in snapshots. Of a union list that is so for the first
    /// subtask only, since each has all of it.
    ///
    /// # Errors
    /// [`StateError::LoadOperator`] if a list has no type, or its type doesn't decode.
    pub fn restore(subtask_index: u32, lists: &[ListState]) -> Result<Self, StateError> {
        let mut backend = OperatorStateBackend::new(subtask_index);
        let mut types = BTreeMap::new();
        for list in lists {
            let Some(name) = typed_state(&list.name) else {
                continue;
            };
            let found = OperatorStateType::from_list(list);
            let found = found.map_err(|cause| StateError::load_operator(name, cause))?;
            types.insert(name, found);
        }
        for list in lists
            .iter()
            .filter(|list| typed_state(&list.name).is_none())
        {
            let missing = || StateError::load_operator(&list.name, LoadError::Untyped);
            let found = types.remove(&*list.name).ok_or_else(missing)?;
            let slot = Slot::Restored(found, list.elements.clone());
            backend.states.insert(list.name.clone(), slot);
        }
        // Others got the elements; that the type doesn't fit is told by every subtask.
        for (name, found) in types {
            let slot = Slot::Restored(found, Vec::new());
            backend.states.insert(name.to_owned(), slot);
        }
        Ok(backend)
    }

    /// Binds a list whose elements a restore deals out among the subtasks, with what was restored
    /// of it. Binding the same again gives a handle of the same list.
    ///
    /// # Errors
    /// [`StateError::AlreadyBound`] if the name is bound in another mode or with another type, or
    /// isn't one for states; [`StateError::RestoredStateMismatch`] if the checkpoint holds it so;
    /// [`StateError::LoadOperator`] if restored elements don't decode.
    pub fn split_list<T: StateValue>(
        &mut self,
        descriptor: &ListStateDescriptor<T>,
    ) -> Result<OperatorListState<T>, StateError> {
        self.list(descriptor, Redistribution::Split)
    }

    /// Binds a list of which each subtask gets all elements at a restore.
    ///
    /// # Errors
    /// As [`split_list`](Self::split_list).
    pub fn union_list<T: StateValue>(
        &mut self,
        descriptor: &ListStateDescriptor<T>,
    ) -> Result<OperatorListState<T>, StateError> {
        self.list(descriptor, Redistribution::Union)
    }

    /// Binds a map of which all subtasks hold the same.
    ///
    /// # Errors
    /// As [`split_list`](Self::split_list).
    pub fn broadcast_map<MK: StateKey + Ord, MV: StateValue>(
        &mut self,
        descriptor: &MapStateDescriptor<MK, MV>,
    ) -> Result<BroadcastState<MK, MV>, StateError> {
        let declared = OperatorStateType {
            mode: Redistribution::Broadcast,
            version: descriptor.version,
            key_schema: schema_of::<MK>(),
            value_schema: value_schema::<MV>(),
        };
        self.bind(&descriptor.name, declared)
    }

    fn list<T: StateValue>(
        &mut self,
        descriptor: &ListStateDescriptor<T>,
        mode: Redistribution,
    ) -> Result<OperatorListState<T>, StateError> {
        let declared = OperatorStateType {
            mode,
            version: descriptor.version,
            key_schema: String::new(),
            value_schema: value_schema::<T>(),
        };
        self.bind(&descriptor.name, declared)
    }

    fn bind<S: BoundOperatorState + Clone + Default>(
        &mut self,
        name: &str,
        declared: OperatorStateType,
    ) -> Result<S, StateError> {
        if let Some(typed) = typed_state(name) {
            let bound = format!("the type of state `{typed}`");
            return Err(already_bound(name, bound, &declared));
        }
        let state = match self.states.get(name) {
            None => S::default(),
            Some(Slot::Bound(bound, state)) => {
                let same = (&**state as &dyn Any).downcast_ref::<S>();
                let same = same.filter(|_| *bound == declared).cloned();
                return same.ok_or_else(|| already_bound(name, bound.to_string(), &declared));
            }
            Some(Slot::Restored(saved, elements)) => {
                if *saved != declared {
                    return Err(mismatch(name, saved, &declared));
                }
                let state = S::default();
                let loaded = state.load(elements);
                loaded.map_err(|cause| StateError::load_operator(name, cause))?;
                state
            }
        };
        let slot = Slot::Bound(declared, Box::new(state.clone()));
        self.states.insert(name.to_owned(), slot);
        Ok(state)
    }

    /// All state at this instant, as lists in the order of their names. They share nothing with the
    /// live state. Without elements in any state there are no lists.
    ///
    /// # Errors
    /// [`StateError::SerialiseOperator`] if an element can't be serialised.
    pub fn snapshot(&self) -> Result<Vec<ListState>, StateError> {
        let mut lists = Vec::new();
        for (name, slot) in &self.states {
            let (found, elements) = match slot {
                Slot::Bound(bound, state) => {
                    let encoded = state.encode();
                    let named = |cause| StateError::serialise_operator(name, cause);
                    (bound, encoded.map_err(named)?)
                }
                Slot::Restored(saved, _)
                    if saved.mode == Redistribution::Union && self.subtask_index > 0 =>
                {
                    continue;
                }
                Slot::Restored(saved, elements) => (saved, elements.clone()),
            };
            if elements.is_empty() {
                continue;
            }
            lists.push(found.to_list(name));
            lists.push(ListState {
                name: name.clone(),
                redistribution: found.mode,
                elements,
            });
        }
        lists.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lists)
    }
}

fn already_bound(name: &str, bound: String, requested: &OperatorStateType) -> StateError {
    StateError::AlreadyBound(Box::new(AlreadyBound {
        name: name.to_owned(),
        bound,
        requested: requested.to_string(),
    }))
}

fn mismatch(name: &str, saved: &OperatorStateType, declared: &OperatorStateType) -> StateError {
    StateError::RestoredStateMismatch(Box::new(RestoredStateMismatch {
        name: name.to_owned(),
        saved: saved.to_string(),
        declared: declared.to_string(),
    }))
}
