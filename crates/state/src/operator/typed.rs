//! The type of an operator state, which is saved beside its elements.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_types::{ListState, Redistribution};

use crate::error::LoadError;
use crate::format::decode_value;

/// Ending of the name of the list that holds a state's type.
const TYPE_SUFFIX: &str = "/type";

/// Version of how operator state is laid out in lists.
const LAYOUT_VERSION: u8 = 1;

/// Mode, version and schemas of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OperatorStateType {
    pub(super) mode: Redistribution,
    pub(super) version: u32,
    /// Empty for lists.
    pub(super) key_schema: String,
    pub(super) value_schema: String,
}

#[derive(Clone, Serialize, Deserialize)]
struct Encoded {
    mode: u8,
    version: u32,
    key_schema: String,
    value_schema: String,
}

impl fmt::Display for OperatorStateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OperatorStateType {
            version,
            key_schema,
            value_schema,
            ..
        } = self;
        let mode = match self.mode {
            Redistribution::Split => "split list",
            Redistribution::Union => "union list",
            Redistribution::Broadcast => "broadcast map",
        };
        write!(f, "`{mode}` version `{version}` of `{value_schema}`")?;
        if !key_schema.is_empty() {
            write!(f, " by `{key_schema}`")?;
        }
        Ok(())
    }
}

impl OperatorStateType {
    /// The list that holds the type of the state `name`. All subtasks write the same.
    pub(super) fn to_list(&self, name: &str) -> ListState {
        let encoded = Encoded {
            mode: match self.mode {
                Redistribution::Split => 0,
                Redistribution::Union => 1,
                Redistribution::Broadcast => 2,
            },
            version: self.version,
            key_schema: self.key_schema.clone(),
            value_schema: self.value_schema.clone(),
        };
        let mut element = vec![LAYOUT_VERSION];
        let body = postcard::to_allocvec(&encoded);
        element.extend(body.expect("numbers and texts always serialise"));
        ListState {
            name: format!("{name}{TYPE_SUFFIX}"),
            redistribution: Redistribution::Broadcast,
            elements: vec![element],
        }
    }

    /// Reads the type of a state from its list.
    pub(super) fn from_list(list: &ListState) -> Result<Self, LoadError> {
        let element = list.elements.first().map_or(&[][..], Vec::as_slice);
        let (version, body) = element.split_first().unwrap_or((&0, &[]));
        if *version != LAYOUT_VERSION {
            return Err(LoadError::Layout { version: *version });
        }
        let encoded: Encoded = decode_value(0, body)?;
        Ok(OperatorStateType {
            mode: match encoded.mode {
                0 => Redistribution::Split,
                1 => Redistribution::Union,
                2 => Redistribution::Broadcast,
                _ => return Err(LoadError::Layout { version: *version }),
            },
            version: encoded.version,
            key_schema: encoded.key_schema,
            value_schema: encoded.value_schema,
        })
    }
}

/// Name of the state whose type a list of this name holds.
pub(super) fn typed_state(list: &str) -> Option<&str> {
    list.strip_suffix(TYPE_SUFFIX)
}
