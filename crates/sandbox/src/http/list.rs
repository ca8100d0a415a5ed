//! The parameters of lists and watches.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{
    answer::{Answer, json_answer, list_answer},
    route::{Form, Query},
    table::{self, Include},
    watch::{self, Start, WatchQuery},
};
use crate::{
    api::{Api, FieldSelector, LabelSelector, PageQuery, Refusal, Resource, Selection, parse_revision},
    faults::Faults,
};

const NOT_OLDER_THAN: &str = "NotOlderThan";

/// Parses the selection of a request.
pub(crate) fn selection(query: &Query, namespace: &str) -> Result<Selection, Refusal> {
    Ok(Selection {
        namespace: namespace.to_owned(),
        labels: LabelSelector::parse(query.get("labelSelector").unwrap_or_default())?,
        fields: FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())?,
    })
}

fn forbidden(field: &str, why: &str) -> Refusal {
    invalid(field, &format!("Forbidden: {why}"))
}

fn invalid(field: &str, why: &str) -> Refusal {
    let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {why}");
    let details = serde_json::json!({
        "group": "meta.k8s.io", "kind": "ListOptions",
        "causes": [{"reason": "FieldValueForbidden", "message": why, "field": field}],
    });
    Refusal { details: Some(Box::new(details)), ..Refusal::new(422, "Invalid", message) }
}

/// Parses the revision that a list must not be older than.
fn not_older_than(query: &Query) -> Result<Option<u64>, Refusal> {
    let revision = query.get("resourceVersion").map(parse_revision).transpose()?;
    let rule = query.get("resourceVersionMatch");
    let paged = query.get("continue").is_some();
    if let (Some(_), true) = (rule, paged) {
        return Err(forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"));
    }
    if let (Some(1..), true) = (revision, paged) {
        return Err(Refusal::bad_request("specifying resource version is not allowed when using continue"));
    }
    match (revision, rule) {
        (None, Some(_)) => Err(forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )),
        (Some(_), Some(other)) if other != NOT_OLDER_THAN => Err(invalid(
            "resourceVersionMatch",
            &format!("Unsupported value: {other:?}: the sandbox supports \"\" and \"NotOlderThan\""),
        )),
        // With a limit, an API server takes a resourceVersion alone for exactly that revision.
        (Some(1..), None) if query.get("limit").is_some() => {
            Err(invalid("resourceVersion", "the sandbox lists no older state: use resourceVersionMatch=NotOlderThan"))
        }
        (revision, _) => Ok(revision),
    }
}

/// Answers a list.
pub(crate) fn list(
    api: &Api,
    resource: &Resource,
    namespace: &str,
    query: &Query,
    form: Form,
) -> Result<Answer, Refusal> {
    if query.get("sendInitialEvents").is_some() {
        return Err(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    let not_older_than = not_older_than(query)?;
    let limit = query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|&limit| limit > 0);
    let page = api.page(
        resource,
        &PageQuery {
            selection: selection(query, namespace)?,
            not_older_than,
            limit,
            token: query.get("continue").map(str::to_owned),
        },
    )?;
    Ok(match form {
        Form::Plain | Form::Discovery => list_answer(page),
        Form::Table => {
            json_answer(200, &table::of_page(&page, Include::parse(query.get("includeObject")), api.clock().now()))
        }
        Form::Metadata => json_answer(200, &table::metadata_of_page(&page)),
    })
}

/// The inputs of a watch besides its parameters.
pub(crate) struct WatchSetting<'s> {
    pub(crate) faults: &'s Faults,
    pub(crate) ended: CancellationToken,
    pub(crate) bookmark_interval: Duration,
    /// The method, target and bearer token of the request.
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) token: Option<String>,
}

/// Answers a watch.
pub(crate) fn watch(
    api: &Api,
    resource: &Resource,
    selection: Selection,
    query: &Query,
    form: Form,
    setting: WatchSetting<'_>,
) -> Result<Answer, Refusal> {
    let initial = query.get("sendInitialEvents").map(|text| text == "true" || text == "1");
    check_initial(query, initial)?;
    let revision = query.get("resourceVersion").map(parse_revision).transpose()?;
    let (target, history) = api.history(resource)?;
    selection.fields.check(&target.spec)?;
    let start = match (initial, revision) {
        (None, Some(revision @ 1..)) => Start::After(revision),
        (Some(false), revision) => {
            Start::After(revision.filter(|&revision| revision > 0).unwrap_or_else(|| api.revision()))
        }
        (Some(true), revision) => initial_objects(api, resource, &selection, revision, true)?,
        (None, None | Some(0)) => initial_objects(api, resource, &selection, None, false)?,
    };
    let watch_query = WatchQuery {
        selection,
        form,
        bookmarks: query.flag("allowWatchBookmarks"),
        timeout: query.number("timeoutSeconds")?.filter(|&seconds| seconds > 0).map(Duration::from_secs),
        start,
        include: Include::parse(query.get("includeObject")),
        bookmark_interval: setting.bookmark_interval,
        method: setting.method,
        target: setting.target,
        token: setting.token,
    };
    Ok(watch::watch(api, &target, history, setting.faults, setting.ended, watch_query))
}

fn check_initial(query: &Query, initial: Option<bool>) -> Result<(), Refusal> {
    let rule = query.get("resourceVersionMatch");
    match (initial, rule) {
        (None, Some(_)) => Err(forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        (Some(_), rule) if rule != Some(NOT_OLDER_THAN) => Err(forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
        (None | Some(_), _) => Ok(()),
    }
}

fn initial_objects(
    api: &Api,
    resource: &Resource,
    selection: &Selection,
    not_older_than: Option<u64>,
    mark_end: bool,
) -> Result<Start, Refusal> {
    let page = api.page(resource, &PageQuery { not_older_than, ..PageQuery::all(selection.clone()) })?;
    Ok(Start::With { objects: page.objects, revision: page.revision, mark_end })
}
