//! Access reviews: everything is permitted, except for requests that a fault answers with 403. A review checks the
//! faults without counting as a hit.

use http::{Method, request::Parts};
use serde_json::{Value, json};

use super::{
    Server,
    answer::{Answer, json_answer},
    route::token_of,
};
use crate::{api::Refusal, faults::About};

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
