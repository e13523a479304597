//! The JSON Schema of the configuration file, for editors.

use serde_json::{Map, Value, json};

use super::{
    manual::{self, Entry},
    shape::{Field, Presence, Shape, join},
};

pub(crate) fn schema() -> Value {
    let entries = manual::entries();
    let mut schema = of(&Shape::of_file(), "", &entries);
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        schema.insert("title".into(), "The configuration file of osb server".into());
    }
    schema
}

fn of(shape: &Shape, path: &str, entries: &[Entry]) -> Value {
    let mut schema = match shape {
        Shape::Text => json!({"type": "string"}),
        Shape::Number => json!({"type": "integer", "minimum": 0}),
        Shape::Switch => json!({"type": "boolean"}),
        Shape::Amount => json!({"type": ["integer", "string"]}),
        Shape::Choice(choices) => json!({"enum": choices}),
        Shape::List(item) => {
            json!({"type": "array", "items": of(item, &format!("{path}[]"), entries)})
        }
        Shape::Named(entry) => json!({
            "type": "object",
            "additionalProperties": of(entry, &join(path, "*"), entries),
        }),
        Shape::Table(fields) => table(fields, path, entries),
    };
    if let (Some(schema), Some(entry)) =
        (schema.as_object_mut(), entries.iter().find(|entry| entry.path == path))
    {
        schema.insert("description".into(), entry.meaning.clone().into());
        let default = entry.default().and_then(|value| serde_json::to_value(value).ok());
        if let Some(default) = default {
            schema.insert("default".into(), default);
        }
    }
    schema
}

fn table(fields: &[Field], path: &str, entries: &[Entry]) -> Value {
    let property =
        |field: &Field| (field.key.to_owned(), of(&field.shape, &join(path, field.key), entries));
    let properties: Map<String, Value> = fields.iter().map(property).collect();
    let required: Vec<&str> = fields
        .iter()
        .filter(|field| field.presence == Presence::Required)
        .map(|field| field.key)
        .collect();
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if let (Some(schema), false) = (schema.as_object_mut(), required.is_empty()) {
        schema.insert("required".into(), json!(required));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_what_types_and_the_manual_say() {
        let schema = schema();
        let at = |pointer: &str| schema.pointer(pointer).unwrap_or_else(|| panic!("{pointer}"));
        let listen = at("/properties/server/properties/listen");
        assert_eq!(
            (&listen["type"], &listen["default"]),
            (&json!("string"), &json!("127.0.0.1:8080"))
        );
        assert_eq!(at("/properties/pool/items/required"), &json!(["image", "size"]));
        assert_eq!(at("/properties/egress/properties/default/enum"), &json!(["public", "deny"]));
        assert_eq!(at("/properties/server/additionalProperties"), &json!(false));
        let registry = "/properties/images/properties/registries/additionalProperties/properties";
        assert_eq!(at(&format!("{registry}/mirrors/type")), &json!("array"));
        let tls = at("/properties/server/properties/tls");
        assert_eq!(tls["required"], json!(["certificate", "key"]));
    }
}
