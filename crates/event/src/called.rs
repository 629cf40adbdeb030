// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Priorities in JSON: the kernel's number, and what people call it, beside each other.
//!
//! For `#[serde(flatten, with = "rtscope_event::called")]`: a field `prio` becomes `"prio": 19, "priority": "rt 80"`. Only the number is
//! read back.

use crate::Priority;
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A priority that may be unknown.
pub trait KnownPriority: Serialize + DeserializeOwned {
    /// It, if it is known.
    fn known(&self) -> Option<Priority>;
}

impl KnownPriority for Priority {
    fn known(&self) -> Option<Priority> {
        Some(*self)
    }
}

impl KnownPriority for Option<Priority> {
    fn known(&self) -> Option<Priority> {
        *self
    }
}

/// Writes both.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<P: KnownPriority, S: Serializer>(prio: &P, serializer: S) -> Result<S::Ok, S::Error> {
    let mut both = serializer.serialize_map(Some(2))?;
    both.serialize_entry("prio", prio)?;
    both.serialize_entry("priority", &prio.known().map(|prio| prio.to_string()))?;
    both.end()
}

/// Reads the number.
///
/// # Errors
/// Those of the deserializer.
pub fn deserialize<'de, P: KnownPriority, D: Deserializer<'de>>(deserializer: D) -> Result<P, D::Error> {
    #[derive(Deserialize)]
    #[serde(bound(deserialize = "P: DeserializeOwned"))]
    struct Number<P> {
        prio: P,
    }
    Number::deserialize(deserializer).map(|number| number.prio)
}
