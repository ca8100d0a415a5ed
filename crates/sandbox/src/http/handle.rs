//! Handling of a request: executes and answers it.

use bytes::Bytes;
use http::{HeaderMap, Method, header, request::Parts};
use serde_json::{Value, json};

use super::{
    Server,
    answer::{Answer, json_answer, nowhere, object_answer, refusal_answer, text_answer, typed},
    discovery,
    route::{ContentType, Form, Query, Route, accepted, content_type, token_of},
    table::{self, Include},
    watch,
};
use crate::{
    api::{
        Api, DeleteOptions, Deleted, PatchKind, Refusal, Resource, Subresource, Target, check_subresource, priority,
    },
    faults::About,
};

pub(super) struct Received {
    pub(super) parts: Parts,
    pub(super) route: Route,
    pub(super) query: Query,
    pub(super) verb: &'static str,
    pub(super) body: Bytes,
}

impl Received {
    pub(super) fn new(parts: Parts, body: Bytes) -> Self {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let route = Route::parse(parts.uri.path());
        let verb = route.verb(&parts.method, &query);
        Self { parts, route, query, verb, body }
    }
}

pub(super) fn handle(server: &Server, received: &Received) -> Answer {
    answer(server, received).unwrap_or_else(|refusal| refusal_answer(&refusal))
}

fn answer(server: &Server, received: &Received) -> Result<Answer, Refusal> {
    let api = &server.api;
    if let Route::Collection { resource, namespace } = &received.route {
        return match api.target(resource) {
            Ok(target) if target.spec.namespaced || namespace.is_empty() => {
                collection(server, received, &target, resource, namespace)
            }
            _ => unknown(api, resource),
        };
    }
    if let Route::Object { resource, namespace, name, subresource } = &received.route {
        return match (api.target(resource), subresource) {
            (Ok(target), Some(subresource)) if target.spec.namespaced != namespace.is_empty() => {
                object(server, received, &target, resource, (namespace, name, *subresource))
            }
            (Ok(target), None) if target.spec.namespaced != namespace.is_empty() => Err(Refusal::no_such_resource()),
            _ => unknown(api, resource),
        };
    }
    if let Route::Binding { namespace, name } = &received.route {
        let binding = posted(received)?;
        writer(server, received)?.bind(namespace, name, &binding)?;
        return Ok(success());
    }
    if let Route::Eviction { namespace, name } = &received.route {
        let eviction = posted(received)?;
        let options = options_of(received, &eviction["deleteOptions"])?;
        server.api.evict(namespace, name, &options)?;
        return Ok(success());
    }
    let form = accepted(&received.parts.headers).unwrap_or(Form::Plain);
    if received.route == Route::AccessReview {
        return access_review(server, &received.parts, parse_object(received).ok());
    }
    if received.parts.method != Method::GET && received.parts.method != Method::HEAD {
        return Err(Refusal::method_not_allowed());
    }
    let found = match &received.route {
        Route::Version => Some(discovery::version()),
        Route::Health => return Ok(text_answer(200, "ok")),
        Route::CoreVersions if form == Form::Discovery => return Ok(aggregated(api, true)),
        Route::Groups if form == Form::Discovery => return Ok(aggregated(api, false)),
        Route::CoreVersions => Some(discovery::core_versions(&server.address.to_string())),
        Route::Groups => Some(discovery::group_list(api)),
        Route::Group(group) => discovery::group(api, group),
        Route::Schemas => Some(discovery::schema_index(api)),
        Route::Schema { group, version } => discovery::schemas_of(api, group, version),
        Route::Resources { group, version } => discovery::resources(api, group, version),
        Route::OldSchemas => return Ok(typed(200, discovery::OLD_TYPE, discovery::old_schemas())),
        Route::AccessReview
        | Route::Collection { .. }
        | Route::Object { .. }
        | Route::Binding { .. }
        | Route::Eviction { .. }
        | Route::Nowhere => None,
    };
    Ok(found.map_or_else(nowhere, |value| json_answer(200, &value)))
}

fn aggregated(api: &Api, core: bool) -> Answer {
    let mut answer = json_answer(200, &discovery::aggregated(api, core));
    answer.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
    );
    answer
}

/// Returns the API for the writes of this request: with the client's manager name, and as a dry run if requested.
fn writer(server: &Server, received: &Received) -> Result<Api, Refusal> {
    let manager = received.query.get("fieldManager");
    let agent = user_agent(&received.parts.headers);
    let manager = manager.unwrap_or_else(|| agent.split('/').next().unwrap_or_default());
    let api = server.api.as_manager(if manager.is_empty() { "unknown" } else { manager });
    Ok(if received.query.dry_run()? { api.dry_run() } else { api })
}

fn user_agent(headers: &HeaderMap) -> &str {
    headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default()
}

/// Answers a request for a resource that isn't served.
fn unknown(api: &Api, resource: &Resource) -> Result<Answer, Refusal> {
    if discovery::resources(api, &resource.group, &resource.version).is_none() {
        return Ok(nowhere());
    }
    Err(Refusal::no_such_resource())
}

fn collection(
    server: &Server,
    received: &Received,
    target: &Target,
    resource: &Resource,
    namespace: &str,
) -> Result<Answer, Refusal> {
    let form = accepted(&received.parts.headers)?;
    let query = &received.query;
    match received.verb {
        "watch" => watch::answer_watch(server, received, resource, watch::selection(query, namespace)?, form),
        "list" => watch::list(server, resource, namespace, query, form),
        "create" if !namespace.is_empty() || !target.spec.namespaced => {
            let created = writer(server, received)?.create_in(resource, namespace, parse_object(received)?)?;
            Ok(shown(server, target, form, Include::Metadata, 201, &created))
        }
        _ => Err(Refusal::method_not_allowed()),
    }
}

/// Returns the path of a request, with the query.
pub(super) fn target_of(parts: &Parts) -> String {
    parts.uri.path_and_query().map_or_else(String::new, ToString::to_string)
}

fn object(
    server: &Server,
    received: &Received,
    target: &Target,
    resource: &Resource,
    (namespace, name, subresource): (&str, &str, Subresource),
) -> Result<Answer, Refusal> {
    let form = accepted(&received.parts.headers)?;
    check_subresource(target, subresource)?;
    match received.verb {
        "get" if subresource == Subresource::Main && received.query.flag("watch") => {
            let selection =
                watch::selection(&received.query, namespace)?.with_fields(&format!("metadata.name={name}"))?;
            watch::answer_watch(server, received, resource, selection, form)
        }
        "get" if subresource == Subresource::Scale => {
            Ok(json_answer(200, &server.api.scale(resource, namespace, name)?))
        }
        "get" => {
            let (target, object) = server.api.object(resource, namespace, name)?;
            if matches!(form, Form::Plain | Form::Discovery) {
                return Ok(object_answer(&target.api_version(), &target.spec.kind, &object));
            }
            Ok(shown(server, &target, form, Include::of(&received.query), 200, object.value()))
        }
        "update" => {
            let body = parse_object(received)?;
            let updated = writer(server, received)?.update_at(resource, namespace, name, subresource, body)?;
            Ok(shown(server, target, form, Include::Metadata, 200, &updated))
        }
        "patch" => {
            let (kind, body) = (patch_kind(received)?, parse_json(&received.body)?);
            let patched = writer(server, received)?.patch(resource, namespace, name, kind, subresource, body)?;
            Ok(shown(server, target, form, Include::Metadata, 200, &patched))
        }
        "delete" if subresource == Subresource::Main => {
            let deleted = server.api.delete(resource, namespace, name, &delete_options(received)?)?;
            Ok(deletion(target, &deleted))
        }
        _ => Err(Refusal::method_not_allowed()),
    }
}

fn patch_kind(received: &Received) -> Result<PatchKind, Refusal> {
    let mut refusal = Refusal::unsupported_media_type(&["application/json-patch+json", "application/merge-patch+json"]);
    match content_type(&received.parts.headers) {
        ContentType::Patch(kind) => return Ok(kind),
        ContentType::Apply => refusal
            .message
            .push_str("; the sandbox doesn't apply on the server: use `kubectl apply` without `--server-side`"),
        ContentType::Json | ContentType::Protobuf | ContentType::Unknown => {}
    }
    Err(refusal)
}

/// Returns an object in the form that the client accepts.
fn shown(server: &Server, target: &Target, form: Form, include: Include, code: u16, value: &Value) -> Answer {
    match form {
        Form::Plain | Form::Discovery => json_answer(code, value),
        Form::Metadata => json_answer(code, &table::metadata_of(value)),
        Form::Table => json_answer(code, &table::of_one(target, value, include, server.api.clock().now())),
    }
}

/// Returns the body of a request that creates something.
fn posted(received: &Received) -> Result<Value, Refusal> {
    if received.parts.method == Method::POST { parse_object(received) } else { Err(Refusal::method_not_allowed()) }
}

/// Returns the answer to a request that creates no object of its own.
fn success() -> Answer {
    json_answer(201, &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
}

fn delete_options(received: &Received) -> Result<DeleteOptions, Refusal> {
    let body = if received.body.is_empty() { json!({}) } else { parse_object(received)? };
    if !body.is_object() {
        return Err(Refusal::bad_request("the body must be DeleteOptions"));
    }
    options_of(received, &body)
}

fn options_of(received: &Received, body: &Value) -> Result<DeleteOptions, Refusal> {
    let policy = received.query.get("propagationPolicy").or_else(|| body["propagationPolicy"].as_str());
    if let Some(other) = policy.filter(|&policy| policy != "Background") {
        let why = "the sandbox deletes dependents in the background alone";
        let message = format!("DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: {other:?}: {why}");
        return Err(Refusal::new(422, "Invalid", message));
    }
    let precondition = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
    let in_body = body["dryRun"].as_array().is_some_and(|list| list.iter().any(|value| value == "All"));
    Ok(DeleteOptions {
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
        grace: received.query.number("gracePeriodSeconds")?.or_else(|| body["gracePeriodSeconds"].as_u64()),
        dry_run: in_body || received.query.dry_run()?,
    })
}

fn deletion(target: &Target, deleted: &Deleted) -> Answer {
    match deleted {
        Deleted::Gone(object) if !target.spec.rules.delete_returns_object => {
            let mut details = json!({
                "name": object["metadata"]["name"], "kind": target.spec.plural, "uid": object["metadata"]["uid"],
            });
            if !target.spec.group.is_empty() {
                details["group"] = json!(target.spec.group);
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            json_answer(200, &status)
        }
        Deleted::Gone(object) | Deleted::Waiting(object) => json_answer(200, &**object),
    }
}

/// The content type that is parsed as an object.
const READ: [&str; 1] = ["application/json"];

/// Returns the refusal of a Protobuf body, which `kubectl create namespace` sends and `kubectl create -f` doesn't.
fn protobuf_refused() -> Refusal {
    let mut refusal = Refusal::unsupported_media_type(&READ);
    refusal.message.push_str(
        "; the sandbox reads no protobuf, which kubectl sends for commands such as `kubectl create namespace`: use \
         `kubectl create -f` or `kubectl apply -f`",
    );
    refusal
}

fn parse_object(received: &Received) -> Result<Value, Refusal> {
    match content_type(&received.parts.headers) {
        ContentType::Json => parse_json(&received.body),
        ContentType::Protobuf => Err(protobuf_refused()),
        ContentType::Patch(_) | ContentType::Apply | ContentType::Unknown => {
            Err(Refusal::unsupported_media_type(&READ))
        }
    }
}

fn parse_json(body: &Bytes) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::bad_request(format!("the body is no JSON: {error}")))
}

/// Answers a SelfSubjectAccessReview. A body that can't be read, as from commands that send protobuf, is `None`, and
/// gets the same answer as an empty review.
fn access_review(server: &Server, parts: &Parts, review: Option<Value>) -> Result<Answer, Refusal> {
    if parts.method != Method::POST {
        return Err(Refusal::method_not_allowed());
    }
    let mut review = review.filter(Value::is_object).unwrap_or_else(|| json!({}));
    let token = token_of(&parts.headers);
    let refused = review.pointer("/spec/resourceAttributes").and_then(|asked| refused(server, asked, token));
    review["kind"] = json!("SelfSubjectAccessReview");
    review["apiVersion"] = json!("authorization.k8s.io/v1");
    review["status"] = match refused {
        None => json!({"allowed": true, "reason": "the sandbox allows everything"}),
        Some(message) => json!({"allowed": false, "reason": message}),
    };
    Ok(json_answer(201, &review))
}

/// Returns the message of a fault that would answer such a request with 403.
fn refused(server: &Server, asked: &Value, token: Option<&str>) -> Option<String> {
    let text = |key: &str| asked[key].as_str().unwrap_or_default();
    let (group, resource, verb) = (text("group"), text("resource"), text("verb"));
    let kinds = server.api.kinds();
    let kind = kinds.iter().find(|kind| kind.group == group && kind.plural == resource)?;
    let mut versions: Vec<_> = kind.versions.iter().filter(|version| version.served).collect();
    versions.sort_by_key(|version| std::cmp::Reverse(priority(&version.name)));
    let version = &versions.first()?.name;
    let method = match verb {
        "get" | "list" | "watch" => "GET",
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        _ => return None,
    };
    let mut parts = if group.is_empty() { vec!["/api", version] } else { vec!["/apis", group, version] };
    if !text("namespace").is_empty() {
        parts.extend(["namespaces", text("namespace")]);
    }
    parts.push(resource);
    match text("name") {
        "" if matches!(verb, "get" | "update" | "patch" | "delete") => parts.push("any"),
        "" => {}
        name => parts.push(name),
    }
    parts.extend(Some(text("subresource")).filter(|part| !part.is_empty()));
    let query = if verb == "watch" { "?watch=true" } else { "" };
    let target = parts.join("/") + query;
    server.faults.forbids(&About { method, verb, target: &target, token })
}
