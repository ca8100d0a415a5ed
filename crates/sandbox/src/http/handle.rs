//! Handling of a request: executes and answers it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, header, request::Parts};
use serde_json::{Value, json};

use super::{
    Server,
    answer::{Answer, json_answer, nowhere, object_answer, refusal_answer, text_answer, typed},
    discovery,
    route::{ContentType, Form, Part, Query, Route, accepted, content_type, token_of},
    table::{self, Include},
    watch::{self, WatchSetting},
};
use crate::{
    api::{Api, DeleteOptions, Deleted, KindSpec, Refusal, Resource, Subresource},
    faults::About,
};

/// A request as it was received.
pub(crate) struct Received {
    pub(crate) parts: Parts,
    pub(crate) route: Route,
    pub(crate) query: Query,
    pub(crate) verb: &'static str,
    pub(crate) body: Bytes,
}

/// Executes and answers a request.
pub(crate) fn handle(server: &Server, received: &Received) -> Answer {
    answer(server, received).unwrap_or_else(|refusal| refusal_answer(&refusal))
}

fn answer(server: &Server, received: &Received) -> Result<Answer, Refusal> {
    let api = &server.api;
    if let Route::Collection { .. } | Route::Object { .. } = received.route {
        return objects(server, received);
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
        Route::AccessReview | Route::Collection { .. } | Route::Object { .. } | Route::Nowhere => None,
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

/// Returns the client's user agent.
fn user_agent(headers: &HeaderMap) -> &str {
    headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default()
}

fn objects(server: &Server, received: &Received) -> Result<Answer, Refusal> {
    match &received.route {
        Route::Collection { resource, namespace } => {
            let scoped = |kind: &KindSpec| kind.namespaced || namespace.is_empty();
            if !server.api.target(resource).is_ok_and(|target| scoped(&target.spec)) {
                return unknown(server, resource);
            }
            collection(server, received, resource, namespace)
        }
        Route::Object { resource, namespace, name, subresource } => {
            let scoped = |kind: &KindSpec| kind.namespaced != namespace.is_empty();
            if !server.api.target(resource).is_ok_and(|target| scoped(&target.spec)) {
                return unknown(server, resource);
            }
            match subresource {
                Part::Unknown => Err(Refusal::no_such_resource()),
                Part::Known(subresource) => object(server, received, resource, namespace, name, *subresource),
            }
        }
        Route::Version
        | Route::Health
        | Route::CoreVersions
        | Route::Groups
        | Route::Group(_)
        | Route::Schemas
        | Route::Schema { .. }
        | Route::Resources { .. }
        | Route::OldSchemas
        | Route::AccessReview
        | Route::Nowhere => Ok(nowhere()),
    }
}

/// Answers a request for a resource that isn't served.
fn unknown(server: &Server, resource: &Resource) -> Result<Answer, Refusal> {
    if discovery::resources(&server.api, &resource.group, &resource.version).is_none() {
        return Ok(nowhere());
    }
    Err(Refusal::no_such_resource())
}

fn collection(server: &Server, received: &Received, resource: &Resource, namespace: &str) -> Result<Answer, Refusal> {
    let form = accepted(&received.parts.headers)?;
    let query = &received.query;
    match received.verb {
        "watch" => watch(server, received, resource, watch::selection(query, namespace)?, form),
        "list" => watch::list(&server.api, resource, namespace, query, form),
        "create" => {
            if namespace.is_empty() && server.api.target(resource)?.spec.namespaced {
                return Err(Refusal::method_not_allowed());
            }
            let api = writer(server, received)?;
            let created = api.create_in(resource, namespace, parse_object(received)?)?;
            Ok(written(server, resource, form, 201, &created))
        }
        _ => Err(Refusal::method_not_allowed()),
    }
}

fn watch(
    server: &Server,
    received: &Received,
    resource: &Resource,
    selection: crate::api::Selection,
    form: Form,
) -> Result<Answer, Refusal> {
    let setting = WatchSetting {
        faults: &server.faults,
        ended: server.ended.clone(),
        bookmark_interval: server.settings.bookmark_interval,
        method: received.parts.method.to_string(),
        target: target_of(&received.parts),
        token: token_of(&received.parts.headers).map(str::to_owned),
    };
    watch::answer_watch(&server.api, resource, selection, &received.query, form, setting)
}

/// Returns the path of a request, with the query.
pub(crate) fn target_of(parts: &Parts) -> String {
    parts.uri.path_and_query().map_or_else(String::new, ToString::to_string)
}

fn object(
    server: &Server,
    received: &Received,
    resource: &Resource,
    namespace: &str,
    name: &str,
    subresource: Subresource,
) -> Result<Answer, Refusal> {
    let form = accepted(&received.parts.headers)?;
    let target = server.api.target(resource)?;
    let there = match subresource {
        Subresource::Main => true,
        Subresource::Status => target.version.status,
        Subresource::Scale => target.version.scale.is_some(),
    };
    if !there {
        return Err(Refusal::no_such_resource());
    }
    match received.verb {
        "get" if subresource == Subresource::Main && received.query.flag("watch") => {
            let selection =
                watch::selection(&received.query, namespace)?.with_fields(&format!("metadata.name={name}"))?;
            watch(server, received, resource, selection, form)
        }
        "get" if subresource == Subresource::Scale => {
            Ok(json_answer(200, &server.api.scale(resource, namespace, name)?))
        }
        "get" => {
            let (target, object) = server.api.object(resource, namespace, name)?;
            let include = Include::parse(received.query.get("includeObject"));
            Ok(match form {
                Form::Plain | Form::Discovery => object_answer(&target.api_version(), &target.spec.kind, &object),
                Form::Metadata => json_answer(200, &table::metadata_of(object.value())),
                Form::Table => json_answer(200, &table::of_one(&target, &object, include, server.api.clock().now())),
            })
        }
        "update" => {
            let api = writer(server, received)?;
            let updated = api.update_at(resource, namespace, name, subresource, parse_object(received)?)?;
            Ok(written(server, resource, form, 200, &updated))
        }
        "patch" => patch(server, received, resource, (namespace, name), subresource, form),
        "delete" if subresource == Subresource::Main => {
            let deleted = server.api.delete(resource, namespace, name, &delete_options(received)?)?;
            Ok(deletion(&target, &deleted))
        }
        _ => Err(Refusal::method_not_allowed()),
    }
}

fn patch(
    server: &Server,
    received: &Received,
    resource: &Resource,
    (namespace, name): (&str, &str),
    subresource: Subresource,
    form: Form,
) -> Result<Answer, Refusal> {
    let mut refusal = Refusal::unsupported_media_type(&["application/json-patch+json", "application/merge-patch+json"]);
    let kind = match content_type(&received.parts.headers) {
        ContentType::Patch(kind) => kind,
        ContentType::Apply => {
            refusal
                .message
                .push_str("; the sandbox doesn't apply on the server: use `kubectl apply` without `--server-side`");
            return Err(refusal);
        }
        ContentType::Json | ContentType::Protobuf | ContentType::Unknown => return Err(refusal),
    };
    let body = parse_json(&received.body)?;
    let patched = writer(server, received)?.patch(resource, namespace, name, kind, subresource, body)?;
    Ok(written(server, resource, form, 200, &patched))
}

/// Returns the answer to a write: the stored object.
fn written(server: &Server, resource: &Resource, form: Form, code: u16, value: &Arc<Value>) -> Answer {
    match form {
        Form::Plain | Form::Discovery => json_answer(code, &**value),
        Form::Metadata => json_answer(code, &table::metadata_of(value)),
        Form::Table => match server.api.target(resource) {
            Ok(target) => {
                json_answer(code, &table::of_value(&target, value, Include::Metadata, server.api.clock().now()))
            }
            Err(refusal) => refusal_answer(&refusal),
        },
    }
}

fn delete_options(received: &Received) -> Result<DeleteOptions, Refusal> {
    let body = if received.body.is_empty() { json!({}) } else { parse_object(received)? };
    if !body.is_object() {
        return Err(Refusal::bad_request("the body must be DeleteOptions"));
    }
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

fn deletion(target: &crate::api::Target, deleted: &Deleted) -> Answer {
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
pub(super) fn access_review(server: &Server, parts: &Parts, review: Option<Value>) -> Result<Answer, Refusal> {
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
    versions.sort_by_key(|version| std::cmp::Reverse(crate::api::priority(&version.name)));
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
