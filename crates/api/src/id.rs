use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Text that is not an id of ours. Routes answer it as "no such thing", never as bad input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an id: {text:?}")]
pub struct InvalidId {
    text: String,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        #[cfg_attr(feature = "schema", schema(value_type = String, format = Uuid))]
        pub struct $name(Uuid);

        impl $name {
            /// A new id that nobody can guess.
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.0.as_hyphenated(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            /// Only the hyphenated lower-case form, so that one id has one spelling in paths,
            /// directory names and logs.
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let invalid = || InvalidId { text: text.chars().take(64).collect() };
                let id = Self(Uuid::try_parse(text).map_err(|_| invalid())?);
                if id.to_string() == text { Ok(id) } else { Err(invalid()) }
            }
        }
    };
}

id! {
    /// Names a sandbox.
    SandboxId
}

/// Where an id of ours says that it is random: its version and its variant, which never change.
const VERSION: u128 = 0x4 << 76;
const VARIANT: u128 = 0b10 << 62;
const LOW: u128 = (1 << 62) - 1;
const MIDDLE: u128 = (1 << 12) - 1;

impl SandboxId {
    /// The 122 bits in which ids of ours differ, for places where 36 characters are too many.
    pub fn bits(self) -> u128 {
        let all = self.0.as_u128();
        (all >> 80) << 74 | (all >> 64 & MIDDLE) << 62 | all & LOW
    }

    /// The id with these bits, of which there are no more than 122.
    pub fn from_bits(bits: u128) -> Option<Self> {
        let (high, middle) = (bits >> 74, bits >> 62 & MIDDLE);
        let all = high << 80 | VERSION | middle << 64 | VARIANT | bits & LOW;
        (bits >> 122 == 0).then(|| Self(Uuid::from_u128(all)))
    }
}
id! {
    /// Names a snapshot.
    SnapshotId
}

/// Names a template: `tpl-`, and then as other ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateId(Uuid);

impl TemplateId {
    const PREFIX: &str = "tpl-";

    /// A new id that nobody can guess.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for TemplateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0.as_hyphenated())
    }
}

impl fmt::Debug for TemplateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TemplateId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId { text: text.chars().take(64).collect() };
        let id = text.strip_prefix(Self::PREFIX).ok_or_else(invalid)?;
        let id = Self(Uuid::try_parse(id).map_err(|_| invalid())?);
        if id.to_string() == text { Ok(id) } else { Err(invalid()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_an_id_are_all_that_it_takes() {
        for _ in 0..100 {
            let id = SandboxId::random();
            assert_eq!(SandboxId::from_bits(id.bits()), Some(id));
        }
        let last = SandboxId::from_bits((1 << 122) - 1).unwrap();
        assert_eq!(last.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(SandboxId::from_bits(1 << 122), None);
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = SandboxId::random();
        assert_eq!(id.to_string().parse(), Ok(id));
        for other in ["", "x", &id.to_string().to_uppercase(), &format!("{{{id}}}"), "../.."] {
            assert!(other.parse::<SandboxId>().is_err(), "{other:?} was taken for an id");
        }
        let template = TemplateId::random().to_string();
        assert_eq!(template.parse::<TemplateId>().map(|id| id.to_string()), Ok(template.clone()));
        for other in ["", "tpl-", "tpl-x", &template.to_uppercase(), &id.to_string()] {
            assert!(other.parse::<TemplateId>().is_err(), "{other:?} was taken for an id");
        }
    }
}
