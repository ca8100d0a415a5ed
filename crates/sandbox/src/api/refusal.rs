//! The refusal of a request, which clients receive as a `metav1.Status` with code, reason and details.

use serde_json::{Value, json};

use super::kind::KindSpec;

/// A refused request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The reason in one word, such as `NotFound`; empty if the API gives none.
    pub reason: &'static str,
    /// The message.
    pub message: String,
    /// The details of the Status: name, group, kind, uid, causes, retryAfterSeconds.
    pub details: Option<Box<Value>>,
    /// The token with which an expired list can continue in a newer state.
    pub continue_token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldCause {
    /// The path of the field.
    pub(crate) field: String,
    /// The reason, such as `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    /// The description of the fault.
    pub(crate) message: String,
}

impl FieldCause {
    pub(crate) fn invalid(field: &str, value: &str, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self { field: field.to_owned(), reason: "FieldValueInvalid", message }
    }

    /// Reports a missing field.
    pub(crate) fn required(field: &str) -> Self {
        Self { field: field.to_owned(), reason: "FieldValueRequired", message: "Required value".to_owned() }
    }

    /// Reports a change of the field that isn't permitted.
    pub(crate) fn forbidden(field: &str, why: &str) -> Self {
        Self { field: field.to_owned(), reason: "FieldValueForbidden", message: format!("Forbidden: {why}") }
    }
}

impl Refusal {
    /// Creates a refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    fn with(self, details: Value) -> Self {
        Self { details: Some(Box::new(details)), ..self }
    }

    fn of(code: u16, reason: &'static str, message: String, kind: &KindSpec, name: &str) -> Self {
        Self::new(code, reason, message).with(details(kind, name))
    }

    /// 400: the request is malformed.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 404: there is no object of that name.
    pub(crate) fn not_found(kind: &KindSpec, name: &str) -> Self {
        Self::of(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified()), kind, name)
    }

    /// 404: there is no such kind or subresource.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with(json!({}))
    }

    /// 405: the resource exists and doesn't support the verb.
    pub(crate) fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with(json!({}))
    }

    /// 409: an object of that name exists.
    pub(crate) fn already_exists(kind: &KindSpec, name: &str) -> Self {
        Self::of(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.qualified()), kind, name)
    }

    /// 409: the object isn't in the state that the request expects.
    pub(crate) fn conflict(kind: &KindSpec, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        Self::of(409, "Conflict", message, kind, name)
    }

    /// 409: the object was written since it was read.
    pub(crate) fn modified(kind: &KindSpec, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// 422: fields of the object are invalid.
    pub(crate) fn invalid(kind: &KindSpec, name: &str, causes: &[FieldCause]) -> Self {
        let list: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let list = if let [only] = list.as_slice() { only.clone() } else { format!("[{}]", list.join(", ")) };
        let named = if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        let message = format!("{named} \"{name}\" is invalid: {list}");
        let mut details = details(kind, name);
        details["kind"] = json!(kind.kind);
        details["causes"] = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        Self::new(422, "Invalid", message).with(details)
    }

    /// 422: a JSON patch can't be applied, for example because a `test` failed.
    pub(crate) fn patch_failed() -> Self {
        Self::new(422, "Invalid", "the server rejected our request due to an error in our request").with(json!({}))
    }

    /// 415: the content type of the body isn't supported.
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 406: none of the accepted content types is supported.
    pub(crate) fn not_acceptable(offered: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", offered.join(", "));
        Self::new(406, "NotAcceptable", message)
    }

    /// 410: the history doesn't reach back that far.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 403: the request is refused.
    pub(crate) fn forbidden(kind: &KindSpec, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.qualified());
        Self::of(403, "Forbidden", message, kind, name)
    }

    /// Returns the refusal as a Status.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = (**details).clone();
        }
        status
    }
}

fn details(kind: &KindSpec, name: &str) -> Value {
    let mut details = json!({"kind": kind.plural});
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    details
}
