use osb_api::ErrorBody;
use utoipa::{
    IntoParams, ToSchema,
    openapi::{
        ArrayBuilder, ContentBuilder, Deprecated, Header, HeaderBuilder, HttpMethod, ObjectBuilder,
        PathItem, Ref, RefOr, Required, ResponseBuilder, Schema, SecurityRequirement,
        ServerBuilder, Type,
        path::{OperationBuilder, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        schema::{KnownFormat, SchemaFormat, SchemaType},
    },
};

const JSON: &str = "application/json";

/// One thing that callers can ask of an API.
#[derive(Clone)]
pub(crate) struct Operation {
    method: HttpMethod,
    path: &'static str,
    described: utoipa::openapi::path::Operation,
    asked: Vec<(String, RefOr<Schema>)>,
    answered: Vec<(String, RefOr<Schema>)>,
}

pub(crate) fn get(id: &str, path: &'static str, summary: &str) -> Operation {
    Operation::new(HttpMethod::Get, id, path, summary)
}

pub(crate) fn post(id: &str, path: &'static str, summary: &str) -> Operation {
    Operation::new(HttpMethod::Post, id, path, summary)
}

pub(crate) fn put(id: &str, path: &'static str, summary: &str) -> Operation {
    Operation::new(HttpMethod::Put, id, path, summary)
}

pub(crate) fn patch(id: &str, path: &'static str, summary: &str) -> Operation {
    Operation::new(HttpMethod::Patch, id, path, summary)
}

pub(crate) fn delete(id: &str, path: &'static str, summary: &str) -> Operation {
    Operation::new(HttpMethod::Delete, id, path, summary)
}

impl Operation {
    fn new(method: HttpMethod, id: &str, path: &'static str, summary: &str) -> Self {
        let mut operation = OperationBuilder::new().operation_id(Some(id)).summary(Some(summary));
        for name in parameters(path) {
            operation = operation.parameter(
                ParameterBuilder::new()
                    .name(name)
                    .parameter_in(ParameterIn::Path)
                    .required(Required::True)
                    .schema(Some(place_schema(name))),
            );
        }
        Self { method, path, described: operation.build(), asked: Vec::new(), answered: Vec::new() }
    }

    pub(crate) fn path(&self) -> &'static str {
        self.path
    }

    pub(crate) fn item(&self) -> PathItem {
        PathItem::new(self.method.clone(), self.described.clone())
    }

    /// The types that requests are made of, by name.
    pub(crate) fn asked(&self) -> &[(String, RefOr<Schema>)] {
        &self.asked
    }

    /// The types that answers are made of, by name.
    pub(crate) fn answered(&self) -> &[(String, RefOr<Schema>)] {
        &self.answered
    }

    fn change(mut self, change: impl FnOnce(OperationBuilder) -> OperationBuilder) -> Self {
        self.described = change(self.described.into()).build();
        self
    }

    pub(crate) fn tag(self, tag: &str) -> Self {
        self.change(|o| o.tag(tag))
    }

    pub(crate) fn describe(self, text: &str) -> Self {
        self.change(|o| o.description(Some(text)))
    }

    pub(crate) fn deprecated(self) -> Self {
        self.change(|o| o.deprecated(Some(Deprecated::True)))
    }

    /// Needs no key.
    pub(crate) fn open(self) -> Self {
        self.change(|o| o.securities(Some([SecurityRequirement::default()])))
    }

    /// Served at the root of the server, whatever the other operations are served below.
    pub(crate) fn at_root(self) -> Self {
        self.change(|o| o.servers(Some([ServerBuilder::new().url("/").build()])))
    }

    pub(crate) fn query<Q: IntoParams>(self) -> Self {
        let parameters = Q::into_params(|| Some(ParameterIn::Query));
        self.change(|o| parameters.into_iter().fold(o, OperationBuilder::parameter))
    }

    /// A query parameter that is text, and must be there.
    pub(crate) fn needs(self, name: &str, text: &str) -> Self {
        self.parameter(name, text, Required::True, text_schema())
    }

    /// A query parameter that may be there.
    pub(crate) fn may(self, name: &str, text: &str, kind: Type) -> Self {
        let schema = ObjectBuilder::new().schema_type(kind).build();
        self.parameter(name, text, Required::False, schema.into())
    }

    /// A query parameter that may be repeated.
    pub(crate) fn repeats(self, name: &str, text: &str) -> Self {
        let schema = ArrayBuilder::new().items(text_schema()).build();
        self.parameter(name, text, Required::True, schema.into())
    }

    fn parameter(self, name: &str, text: &str, needed: Required, schema: RefOr<Schema>) -> Self {
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Query)
            .required(needed)
            .description(Some(text))
            .schema(Some(schema));
        self.change(|o| o.parameter(parameter))
    }

    /// A JSON body.
    pub(crate) fn body(self, shape: Shape) -> Self {
        self.request(JSON, shape, Required::True)
    }

    /// A JSON body that may be missing altogether.
    pub(crate) fn optional_body(self, shape: Shape) -> Self {
        self.request(JSON, shape, Required::False)
    }

    pub(crate) fn request(mut self, media: &str, shape: Shape, required: Required) -> Self {
        self.asked.extend(shape.components);
        let body = RequestBodyBuilder::new()
            .content(media, ContentBuilder::new().schema(Some(shape.schema)).build())
            .required(Some(required))
            .build();
        self.change(|o| o.request_body(Some(body)))
    }

    /// Succeeds with a JSON body.
    pub(crate) fn answers(self, status: u16, text: &str, shape: Shape) -> Self {
        self.answers_as(JSON, status, text, shape)
    }

    /// Succeeds with a body of another kind.
    pub(crate) fn answers_as(mut self, media: &str, status: u16, text: &str, shape: Shape) -> Self {
        self.answered.extend(shape.components);
        let response = response(media, text, shape.schema);
        self.change(|o| o.response(status.to_string(), response))
    }

    /// Succeeds with a JSON body, or with text for those who ask in the old way.
    pub(crate) fn answers_or_text(mut self, status: u16, text: &str, shape: Shape) -> Self {
        self.answered.extend(shape.components);
        let old = ContentBuilder::new().schema(Some(text_schema())).build();
        let response = response(JSON, text, shape.schema)
            .content("text/plain", old)
            .header("Deprecation", header("`true` on plain text.", Type::String));
        self.change(|o| o.response(status.to_string(), response))
    }

    /// Succeeds with a JSON body, or with one of another kind if the caller wants that.
    pub(crate) fn answers_also_as(
        mut self,
        media: &str,
        status: u16,
        text: &str,
        [usual, other]: [Shape; 2],
    ) -> Self {
        self.answered.extend(usual.components.into_iter().chain(other.components));
        let other = ContentBuilder::new().schema(Some(other.schema)).build();
        let response = response(JSON, text, usual.schema).content(media, other);
        self.change(|o| o.response(status.to_string(), response))
    }

    /// Passes on what somebody else answers, whatever the status.
    pub(crate) fn passes_on(self, text: &str) -> Self {
        let response = response("*/*", text, bytes().schema).build();
        self.change(|o| o.response("200", response.clone()).response("default", response))
    }

    /// Succeeds with a JSON body, and says in a header where the thing is from now on.
    pub(crate) fn answers_with_location(mut self, status: u16, text: &str, shape: Shape) -> Self {
        self.answered.extend(shape.components);
        let place = header("The path of what was made.", Type::String);
        let response = response(JSON, text, shape.schema).header("Location", place);
        self.change(|o| o.response(status.to_string(), response))
    }

    /// Succeeds with a text that continues at the `cursor` in the header of that name.
    pub(crate) fn answers_log(self, cursor: &str) -> Self {
        let response =
            response("text/plain", "What was written from the cursor on.", text_schema())
                .header(cursor, header("Where the next read starts.", Type::Integer));
        self.change(|o| o.response("200", response))
    }

    /// Succeeds without a body.
    pub(crate) fn empty(self, status: u16, text: &str) -> Self {
        let response = ResponseBuilder::new().description(text).build();
        self.change(|o| o.response(status.to_string(), response))
    }

    /// Fails with these statuses; the body is always the same.
    pub(crate) fn errors(self, statuses: &[u16]) -> Self {
        let content =
            ContentBuilder::new().schema(Some(Ref::from_schema_name(ErrorBody::name()))).build();
        statuses.iter().fold(self, |operation, status| {
            let response = ResponseBuilder::new()
                .description(meaning(*status))
                .content(JSON, content.clone())
                .build();
            operation.change(|o| o.response(status.to_string(), response))
        })
    }
}

fn response(media: &str, text: &str, schema: RefOr<Schema>) -> ResponseBuilder {
    ResponseBuilder::new()
        .description(text)
        .content(media, ContentBuilder::new().schema(Some(schema)).build())
}

fn header(text: &str, kind: Type) -> Header {
    HeaderBuilder::new()
        .description(Some(text))
        .schema(Some(ObjectBuilder::new().schema_type(kind)))
        .build()
}

/// The names in the braces of a path.
fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request cannot be accepted as it is.",
        401 => "The key or token is missing or wrong.",
        403 => "The caller may not do this.",
        404 => "There is no such thing.",
        409 => "The thing is in a state that does not allow this.",
        412 => "Something that this needs is not ready.",
        413 => "The body is too large.",
        416 => "The range lies outside the file.",
        422 => "Parts of the request contradict each other.",
        426 => "This needs an encrypted connection.",
        429 => "At its limit; the same call may succeed later.",
        501 => "This server or its runtime does not do that.",
        502 => "The service or the registry behind this broke off, or answered nonsense.",
        503 => "Not ready; the same call may succeed later.",
        504 => "The service in the sandbox did not answer in time.",
        _ => "Something failed that the caller cannot mend.",
    }
}

/// The form of a body, with the types that it refers to.
#[derive(Clone)]
pub(crate) struct Shape {
    schema: RefOr<Schema>,
    components: Vec<(String, RefOr<Schema>)>,
}

impl Shape {
    fn inline(schema: impl Into<RefOr<Schema>>) -> Self {
        Self { schema: schema.into(), components: Vec::new() }
    }
}

pub(crate) fn one<T: ToSchema>() -> Shape {
    let mut components = Vec::new();
    T::schemas(&mut components);
    components.push((T::name().into_owned(), T::schema()));
    Shape { schema: Ref::from_schema_name(T::name()).into(), components }
}

pub(crate) fn list<T: ToSchema>() -> Shape {
    let Shape { schema, components } = one::<T>();
    Shape { schema: ArrayBuilder::new().items(schema).into(), components }
}

pub(crate) fn map<T: ToSchema>() -> Shape {
    let Shape { schema, components } = one::<T>();
    let map = ObjectBuilder::new().additional_properties(Some(schema));
    Shape { schema: map.into(), components }
}

pub(crate) fn list_of_text() -> Shape {
    Shape::inline(ArrayBuilder::new().items(text_schema()))
}

/// Text values by key; null takes a key away.
pub(crate) fn merge_patch() -> Shape {
    let value =
        ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Null])).build();
    Shape::inline(ObjectBuilder::new().additional_properties(Some(RefOr::T(value.into()))))
}

pub(crate) fn text() -> Shape {
    Shape::inline(text_schema())
}

pub(crate) fn bytes() -> Shape {
    let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
    Shape::inline(ObjectBuilder::new().schema_type(Type::String).format(Some(format)))
}

/// Pairs of parts in a form, each `metadata` before its `file`.
pub(crate) fn form<M: ToSchema>() -> Shape {
    let metadata = one::<M>();
    let file = bytes();
    let parts = ObjectBuilder::new()
        .property("metadata", ArrayBuilder::new().items(metadata.schema).build())
        .property("file", ArrayBuilder::new().items(file.schema).build())
        .required("metadata")
        .required("file");
    Shape { schema: parts.into(), components: metadata.components }
}

/// What may stand in a path where it has this name in braces.
fn place_schema(name: &str) -> RefOr<Schema> {
    match name {
        "sandboxId" => {
            let format = SchemaFormat::KnownFormat(KnownFormat::Uuid);
            ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
        }
        "port" => ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(u16::MAX))
            .into(),
        _ => text_schema(),
    }
}

fn text_schema() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).into()
}
