use utoipa::openapi::{
    RefOr, Schema, Type,
    schema::{AdditionalProperties, ArrayItems, SchemaType},
};

/// The schema of an answer: optional fields are left out there and never null, although the Rust
/// type of both is `Option`.
pub(crate) fn without_null(schema: RefOr<Schema>) -> RefOr<Schema> {
    let RefOr::T(schema) = schema else { return schema };
    RefOr::T(match schema {
        Schema::Object(mut object) => {
            object.schema_type = strip(object.schema_type);
            object.properties =
                object.properties.into_iter().map(|(k, v)| (k, without_null(v))).collect();
            object.additional_properties = object.additional_properties.map(|more| {
                Box::new(match *more {
                    AdditionalProperties::RefOr(schema) => {
                        AdditionalProperties::RefOr(without_null(schema))
                    }
                    free @ AdditionalProperties::FreeForm(_) => free,
                })
            });
            Schema::Object(object)
        }
        Schema::Array(mut array) => {
            array.schema_type = strip(array.schema_type);
            array.items = match array.items {
                ArrayItems::RefOrSchema(items) => {
                    ArrayItems::RefOrSchema(Box::new(without_null(*items)))
                }
                ArrayItems::False => ArrayItems::False,
            };
            Schema::Array(array)
        }
        Schema::OneOf(mut one) => {
            one.items.retain(|item| !is_null(item));
            match one.items.as_slice() {
                [only] if one.description.is_none() => return without_null(only.clone()),
                _ => {
                    one.items = one.items.into_iter().map(without_null).collect();
                    Schema::OneOf(one)
                }
            }
        }
        other @ (Schema::AllOf(_) | Schema::AnyOf(_) | _) => other,
    })
}

fn strip(kind: SchemaType) -> SchemaType {
    let SchemaType::Array(kinds) = kind else { return kind };
    let kinds: Vec<Type> = kinds.into_iter().filter(|kind| *kind != Type::Null).collect();
    match <[Type; 1]>::try_from(kinds) {
        Ok([only]) => SchemaType::Type(only),
        Err(kinds) => SchemaType::Array(kinds),
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object))
        if object.schema_type == SchemaType::Type(Type::Null))
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use utoipa::{PartialSchema as _, ToSchema};

    use super::*;

    #[derive(Serialize, ToSchema)]
    struct Inner {
        text: String,
    }

    #[derive(Serialize, ToSchema)]
    struct Answer {
        name: Option<String>,
        inner: Option<Inner>,
        /// With a description of its own.
        told: Option<Inner>,
        names: Option<Vec<String>>,
    }

    #[test]
    fn nothing_in_an_answer_is_null() {
        let loose = serde_json::to_string(&Answer::schema()).unwrap();
        assert!(loose.contains("null"), "{loose}");
        let strict = serde_json::to_string(&without_null(Answer::schema())).unwrap();
        assert!(!strict.contains("null"), "{strict}");
        assert!(strict.contains("With a description of its own."), "{strict}");
    }
}
