use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The permission bits of a file.
///
/// On the wire they are the octal digits read as a decimal number: `0o755` travels as `755`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode(u32);

/// A number whose digits are not an octal mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a file mode: write its octal digits, such as 644 or 1777")]
pub struct InvalidMode(u64);

impl Mode {
    /// Takes the permission bits, setuid, setgid and sticky included, out of a `st_mode`.
    pub const fn from_bits(st_mode: u32) -> Self {
        Self(st_mode & 0o7777)
    }

    /// The bits as the kernel takes them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Reads the decimal number of the wire.
    pub const fn from_digits(digits: u64) -> Result<Self, InvalidMode> {
        let (mut rest, mut bits, mut shift) = (digits, 0, 0);
        while rest > 0 {
            let digit = rest % 10;
            if digit > 7 || shift > 9 {
                return Err(InvalidMode(digits));
            }
            bits |= digit << shift;
            shift += 3;
            rest /= 10;
        }
        #[expect(clippy::cast_possible_truncation, reason = "four octal digits are twelve bits")]
        Ok(Self(bits as u32))
    }

    /// The decimal number of the wire.
    pub const fn digits(self) -> u32 {
        self.0 % 8 + self.0 / 8 % 8 * 10 + self.0 / 64 % 8 * 100 + self.0 / 512 * 1000
    }

    /// For request fields in which absence, null and zero all mean "leave it as it is".
    pub(super) fn optional<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Self>, D::Error> {
        Ok(Option::<Self>::deserialize(deserializer)?.filter(|mode| mode.0 != 0))
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mode({:#o})", self.0)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.digits())
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_digits(u64::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use utoipa::{
        PartialSchema, ToSchema,
        openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, schema::Type},
    };

    use super::Mode;

    impl PartialSchema for Mode {
        fn schema() -> RefOr<Schema> {
            ObjectBuilder::new()
                .schema_type(Type::Integer)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
                .description(Some("Octal permission digits, read as a decimal number."))
                .examples([755])
                .into()
        }
    }

    impl ToSchema for Mode {
        fn name() -> Cow<'static, str> {
            Cow::Borrowed("Mode")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_digits_travel_as_a_decimal_number() {
        for (bits, digits) in [(0o644, 644), (0o755, 755), (0o7, 7), (0o1777, 1777), (0, 0)] {
            let mode = Mode::from_bits(bits);
            assert_eq!(mode.digits(), digits);
            assert_eq!(Mode::from_digits(digits.into()), Ok(mode));
            assert_eq!(serde_json::to_string(&mode).unwrap(), digits.to_string());
        }
    }

    #[test]
    fn every_mode_survives_the_wire() {
        for bits in 0..=0o7777 {
            let mode = Mode::from_bits(bits);
            assert_eq!(Mode::from_digits(mode.digits().into()), Ok(mode));
        }
    }

    #[test]
    fn what_is_not_octal_is_refused() {
        for digits in [8, 9, 789, 10_000, 77_777, u64::MAX] {
            assert_eq!(Mode::from_digits(digits), Err(InvalidMode(digits)));
        }
        assert!(serde_json::from_str::<Mode>("-1").is_err());
        assert!(serde_json::from_str::<Mode>("\"755\"").is_err());
    }
}
