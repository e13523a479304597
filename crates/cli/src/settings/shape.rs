//! What may stand in the configuration file, asked of the types that read it.
//!
//! Each type is asked to read itself from a [`Probe`], which has nothing to give: the first thing that
//! the type asks for is the answer. So there is no second list of settings that could be wrong.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor, value::StrDeserializer},
    forward_to_deserialize_any,
};
use serde_json::{Map, Value, json};

use super::File;

/// What a setting can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Number,
    Switch,
    /// A number, or text with a unit.
    Amount,
    Choice(&'static [&'static str]),
    List(Box<Shape>),
    /// A table whose keys are names that the operator chooses.
    Named(Box<Shape>),
    Table(Vec<Field>),
}

/// A key of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) key: &'static str,
    pub(super) shape: Shape,
    pub(super) presence: Presence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Required,
    Optional,
}

/// How paths name the elements of a list, and the values of a table with names of the operator's.
const ITEM: &str = "[]";
const ENTRY: &str = "*";

impl Shape {
    /// The whole file.
    pub(super) fn of_file() -> Self {
        Self::at(&[])
    }

    fn at(path: &[&'static str]) -> Self {
        let below = |step| Self::at(&[path, &[step]].concat());
        match File::deserialize(Probe(path)) {
            Err(Asked::For(shape)) => shape,
            Err(Asked::ForList) => Self::List(Box::new(below(ITEM))),
            Err(Asked::ForNamed) => Self::Named(Box::new(below(ENTRY))),
            Err(Asked::ForTable(keys)) => {
                let fields = keys.iter().map(|&key| (key, below(key))).collect::<Vec<_>>();
                let required = required(path, &fields);
                let field = |(key, shape)| {
                    let is_required = required.iter().any(|required| required == key);
                    let presence =
                        if is_required { Presence::Required } else { Presence::Optional };
                    Field { key, shape, presence }
                };
                Self::Table(fields.into_iter().map(field).collect())
            }
            // A type that asks for nothing that a file can have; the tests look at all of them.
            Ok(_) | Err(Asked::Otherwise) => Self::Amount,
        }
    }

    /// The key of a table.
    pub(super) fn field(&self, key: &str) -> Option<&Field> {
        self.fields().iter().find(|field| field.key == key)
    }

    pub(super) fn fields(&self) -> &[Field] {
        match self {
            Self::Table(fields) => fields,
            Self::Text
            | Self::Number
            | Self::Switch
            | Self::Amount
            | Self::Choice(_)
            | Self::List(_)
            | Self::Named(_) => &[],
        }
    }

    /// Every setting that has no settings below it, by its path: `server.listen`, `pool[].image`,
    /// `images.registries.*.ca`.
    pub(super) fn leaves(&self) -> Vec<String> {
        self.leaves_below("")
    }

    fn leaves_below(&self, path: &str) -> Vec<String> {
        match self {
            Self::Table(fields) => {
                let of = |field: &Field| field.shape.leaves_below(&join(path, field.key));
                fields.iter().flat_map(of).collect()
            }
            Self::List(item) if !item.fields().is_empty() => {
                item.leaves_below(&format!("{path}{ITEM}"))
            }
            Self::Named(entry) if !entry.fields().is_empty() => {
                entry.leaves_below(&join(path, ENTRY))
            }
            Self::Text
            | Self::Number
            | Self::Switch
            | Self::Amount
            | Self::Choice(_)
            | Self::List(_)
            | Self::Named(_) => vec![path.to_owned()],
        }
    }
}

/// The path of what is below another.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The keys without which the table cannot be: those that are missed one after the other.
fn required(path: &[&'static str], fields: &[(&'static str, Shape)]) -> Vec<String> {
    let mut given = Map::new();
    loop {
        let mut whole = Value::Object(given.clone());
        for step in path.iter().rev() {
            whole = match *step {
                ITEM => json!([whole]),
                ENTRY => json!({ "name": whole }),
                key => json!({ key: whole }),
            };
        }
        let missing = File::deserialize(whole).err().and_then(|error| {
            Some(error.to_string().strip_prefix("missing field `")?.split('`').next()?.to_owned())
        });
        let found = missing.and_then(|key| {
            fields.iter().find(|(name, _)| *name == key && !given.contains_key(&key))
        });
        let Some((key, shape)) = found else { break };
        let value = if *shape == Shape::Number { json!(1) } else { json!("") };
        given.insert((*key).to_owned(), value);
    }
    given.into_iter().map(|(key, _)| key).collect()
}

/// Reads nothing, to hear what is asked for at a path.
struct Probe<'a>(&'a [&'static str]);

/// What was asked for.
#[derive(Debug)]
enum Asked {
    For(Shape),
    ForList,
    ForNamed,
    ForTable(&'static [&'static str]),
    Otherwise,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Asked {}

impl serde::de::Error for Asked {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Otherwise
    }
}

macro_rules! asks {
    ($($method:ident => $shape:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Asked> {
            Err(Asked::For(Shape::$shape))
        })*
    };
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Asked;

    asks! {
        deserialize_any => Amount,
        deserialize_bool => Switch,
        deserialize_str => Text,
        deserialize_string => Text,
        deserialize_u8 => Number,
        deserialize_u16 => Number,
        deserialize_u32 => Number,
        deserialize_u64 => Number,
        deserialize_i64 => Number,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Asked> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Asked> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Asked> {
        match self.0 {
            [ITEM, rest @ ..] => visitor.visit_seq(Probe(rest)),
            _ => Err(Asked::ForList),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Asked> {
        match self.0 {
            [ENTRY, ..] => visitor.visit_map(self),
            _ => Err(Asked::ForNamed),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Asked> {
        match self.0 {
            [] => Err(Asked::ForTable(fields)),
            [_, ..] => visitor.visit_map(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Asked> {
        Err(Asked::For(Shape::Choice(variants)))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
        identifier ignored_any
    }
}

impl<'de> SeqAccess<'de> for Probe<'_> {
    type Error = Asked;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Asked> {
        seed.deserialize(Probe(self.0)).map(Some)
    }
}

/// The key that the path begins with, and the rest of the path in its value.
impl<'de> MapAccess<'de> for Probe<'_> {
    type Error = Asked;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Asked> {
        let key = self.0.first().copied().unwrap_or_default();
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Asked> {
        seed.deserialize(Probe(self.0.get(1..).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_say_what_they_read() {
        let file = Shape::of_file();
        let leaves = file.leaves();
        for path in [
            "server.listen",
            "server.tls.certificate",
            "egress.vault.store.token-file",
            "images.aliases",
            "images.registries.*.ca",
            "pool[].env",
            "runtime.type",
        ] {
            assert!(leaves.iter().any(|leaf| leaf == path), "{path} is not in {leaves:?}");
        }
        let egress = &file.field("egress").unwrap().shape;
        assert_eq!(egress.field("bandwidth").unwrap().shape, Shape::Amount);
        assert_eq!(egress.field("connections").unwrap().shape, Shape::Number);
        assert_eq!(egress.field("allow").unwrap().shape, Shape::List(Box::new(Shape::Text)));
        assert_eq!(egress.field("default").unwrap().shape, Shape::Choice(&["public", "deny"]));
        let Shape::List(pool) = &file.field("pool").unwrap().shape else { panic!("no list") };
        let needed = |key: &str| pool.field(key).unwrap().presence;
        assert_eq!([needed("image"), needed("size")], [Presence::Required; 2]);
        assert_eq!(needed("env"), Presence::Optional);
    }

    #[test]
    fn only_one_setting_is_a_number_or_a_text() {
        fn amounts(shape: &Shape, path: &str) -> Vec<String> {
            match shape {
                Shape::Amount => vec![path.to_owned()],
                Shape::List(inner) | Shape::Named(inner) => amounts(inner, path),
                Shape::Table(fields) => fields
                    .iter()
                    .flat_map(|field| amounts(&field.shape, &join(path, field.key)))
                    .collect(),
                Shape::Text | Shape::Number | Shape::Switch | Shape::Choice(_) => Vec::new(),
            }
        }
        // What a type asks for that this does not know would look like one, too.
        assert_eq!(amounts(&Shape::of_file(), ""), ["egress.bandwidth"]);
    }
}
