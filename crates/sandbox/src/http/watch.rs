//! Lists and watches: their parameters; and a watch itself, which sends events as they happen, and bookmarks in between,
//! until the client, its timeout, a fault or the server ends it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::stream;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    answer::{Answer, Cut, json_answer, list_answer, opening, stream_answer},
    route::{Form, Query},
    table::{self, Include},
};
use crate::{
    api::{
        Api, Change, ChangeKind, FieldSelector, Forgotten, History, LabelSelector, Object, PageQuery, Refusal,
        Resource, Selection, Target, parse_revision, seen, too_old,
    },
    faults::{About, Faults, WatchFault},
};

/// The number of bytes that are sent at once.
const PIECE: usize = 64 * 1024;

/// The parameters of a watch.
#[derive(Debug)]
pub(crate) struct WatchQuery {
    pub(crate) selection: Selection,
    pub(crate) form: Form,
    pub(crate) include: Include,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Option<Duration>,
    /// The start of the watch.
    pub(crate) start: Start,
    /// The maximum time between two bookmarks.
    pub(crate) bookmark_interval: Duration,
    /// The method, target and bearer token of the request, for faults.
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) token: Option<String>,
}

/// The start of a watch.
#[derive(Debug)]
pub(crate) enum Start {
    /// After a revision.
    After(u64),
    /// With these objects as added, and then after the revision.
    With { objects: Vec<Arc<Object>>, revision: u64, mark_end: bool },
}

/// Starts a watch.
pub(crate) fn watch(
    api: &Api,
    target: &Target,
    history: Arc<History>,
    faults: &Faults,
    ended: CancellationToken,
    query: WatchQuery,
) -> Answer {
    let api_version = target.api_version();
    let now = Instant::now();
    let mut watch = Watch {
        opening: opening(&api_version, &target.spec.kind),
        api: api.clone(),
        target: target.clone(),
        wake: history.subscribe(),
        history,
        faults_changed: faults.subscribe(),
        faults: faults.clone(),
        met: BTreeMap::new(),
        counted: BTreeMap::new(),
        cursor: 0,
        follows: false,
        pending: VecDeque::new(),
        headings_sent: false,
        next_bookmark: now + query.bookmark_interval,
        deadline: query.timeout.map(|timeout| now + timeout),
        state: Flow::Open,
        ended,
        query,
    };
    watch.start();
    stream_answer(stream::unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((piece, watch))
    }))
}

struct Watch {
    api: Api,
    target: Target,
    query: WatchQuery,
    opening: Bytes,
    history: Arc<History>,
    wake: watch::Receiver<u64>,
    faults: Faults,
    faults_changed: watch::Receiver<()>,
    met: BTreeMap<u64, Option<WatchFault>>,
    /// The number of events so far, for each fault that counts them.
    counted: BTreeMap<u64, usize>,
    /// The revision up to which all changes were seen.
    cursor: u64,
    /// True once it has got all changes up to its cursor, so that it doesn't begin from an older revision.
    follows: bool,
    pending: VecDeque<Bytes>,
    headings_sent: bool,
    next_bookmark: Instant,
    deadline: Option<Instant>,
    state: Flow,
    ended: CancellationToken,
}

/// The state of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Open,
    /// The pending lines are sent, and then the watch ends.
    Ending,
    /// The pending lines are sent, and then the connection is cut.
    Cutting,
}

impl Watch {
    fn start(&mut self) {
        match std::mem::replace(&mut self.query.start, Start::After(0)) {
            Start::After(revision) => self.cursor = revision,
            Start::With { objects, revision, mark_end } => {
                self.cursor = revision;
                self.follows = true;
                for object in objects {
                    self.push(ChangeKind::Added, &object);
                }
                if mark_end {
                    self.bookmark(true);
                }
            }
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        loop {
            self.apply_faults();
            let stalled = self.is_met(WatchFault::Stall);
            if !stalled {
                if self.pending.is_empty() && self.state == Flow::Open {
                    self.read();
                }
                if let Some(piece) = self.take() {
                    return Some(Ok(piece));
                }
                match self.state {
                    Flow::Open => {}
                    Flow::Ending => return None,
                    Flow::Cutting => {
                        // The pause lets earlier data be sent.
                        tokio::task::yield_now().await;
                        return Some(Err(Cut));
                    }
                }
            }
            if !self.wait(stalled).await {
                return None;
            }
        }
    }

    /// Waits until there may be something to do. Returns false if the server has ended.
    async fn wait(&mut self, stalled: bool) -> bool {
        let far = Instant::now() + Duration::from_secs(86_400);
        let bookmark = if self.query.bookmarks && !stalled { self.next_bookmark } else { far };
        tokio::select! {
            () = self.ended.cancelled() => return false,
            () = tokio::time::sleep_until(self.deadline.unwrap_or(far)), if self.deadline.is_some() => {
                if self.query.bookmarks && !stalled {
                    self.bookmark(false);
                }
                self.state = Flow::Ending;
            }
            () = tokio::time::sleep_until(bookmark) => if self.query.bookmarks && !stalled { self.bookmark(false) },
            // Both senders live as long as this watch.
            _ = self.wake.changed(), if !stalled => {}
            _ = self.faults_changed.changed() => {}
        }
        true
    }

    /// Reads the changes since the last call.
    fn read(&mut self) {
        // The revision is read first: all changes up to it are in the history then.
        let revision = self.api.revision();
        let changes = if self.follows { self.history.following(self.cursor) } else { self.history.after(self.cursor) };
        match changes {
            Err(forgotten) => self.expire(forgotten),
            Ok(changes) => {
                self.follows = true;
                for change in &changes.list {
                    self.deliver(change);
                    self.cursor = change.revision;
                    if self.state != Flow::Open {
                        return;
                    }
                }
                self.cursor = self.cursor.max(revision);
                if changes.ended {
                    self.state = Flow::Ending;
                }
            }
        }
    }

    fn expire(&mut self, forgotten: Forgotten) {
        self.push_value("ERROR", &too_old(self.cursor, forgotten).status());
        self.state = Flow::Ending;
    }

    fn deliver(&mut self, change: &Change) {
        let Some((kind, object)) = seen(change, &self.query.selection) else { return };
        if !self.may_send() {
            return;
        }
        self.push(kind, &object);
        if self.is_met(WatchFault::Duplicate) {
            self.push(kind, &object);
        }
        if self.is_met(WatchFault::Outdated)
            && let Some(previous) = &change.previous
        {
            self.push(ChangeKind::Modified, previous);
        }
        self.count();
    }

    fn apply_faults(&mut self) {
        let WatchQuery { method, target, token, .. } = &self.query;
        let about = About { method, verb: "watch", target, token: token.as_deref() };
        let known: Vec<u64> = self.met.keys().copied().collect();
        self.faults.apply_to_watch(&about, &mut self.met);
        let new: Vec<(u64, WatchFault)> = self
            .met
            .iter()
            .filter(|(id, _)| !known.contains(id))
            .filter_map(|(id, fault)| Some((*id, (*fault)?)))
            .collect();
        for (id, fault) in new {
            match fault {
                WatchFault::Garbage => {
                    self.pending.push_back(Bytes::from_static(b"{\"type\":\"MODIFIED\",\"object\":{\"kind\n"));
                    self.state = Flow::Ending;
                }
                WatchFault::Expire => self.expire(Forgotten { oldest: self.cursor + 1 }),
                WatchFault::EndAfter(_) | WatchFault::CutAfter(_) => {
                    self.counted.insert(id, 0);
                }
                WatchFault::Stall | WatchFault::Duplicate | WatchFault::Outdated => {}
            }
        }
        self.may_send();
    }

    fn is_met(&self, fault: WatchFault) -> bool {
        self.met.values().any(|met| *met == Some(fault))
    }

    fn count(&mut self) {
        self.counted.values_mut().for_each(|count| *count += 1);
        self.may_send();
    }

    /// Ends the watch once a fault's number of events has been sent. Returns true if the watch goes on.
    fn may_send(&mut self) -> bool {
        for (id, count) in &self.counted {
            match self.met.get(id) {
                Some(Some(WatchFault::EndAfter(most))) if count >= most => self.state = Flow::Ending,
                Some(Some(WatchFault::CutAfter(most))) if count >= most => self.state = Flow::Cutting,
                Some(_) | None => {}
            }
        }
        self.state == Flow::Open
    }

    fn push(&mut self, kind: ChangeKind, object: &Object) {
        let word = match kind {
            ChangeKind::Added => "ADDED",
            ChangeKind::Modified => "MODIFIED",
            ChangeKind::Deleted => "DELETED",
        };
        match self.query.form {
            Form::Plain | Form::Discovery => {
                let mut event = BytesMut::with_capacity(object.tail_len() + self.opening.len() + 40);
                event.extend_from_slice(format!("{{\"type\":\"{word}\",\"object\":").as_bytes());
                event.extend_from_slice(&self.opening);
                object.write_tail(&mut event);
                event.extend_from_slice(b"}\n");
                self.pending.push_back(event.freeze());
            }
            Form::Metadata => self.push_value(word, &table::metadata_of(object.value())),
            Form::Table => {
                let mut shown = table::of_one(&self.target, object, self.query.include, self.api.clock().now());
                if std::mem::replace(&mut self.headings_sent, true) {
                    shown["columnDefinitions"] = Value::Null;
                }
                self.push_value(word, &shown);
            }
        }
    }

    fn push_value(&mut self, word: &str, object: &Value) {
        self.pending.push_back(Bytes::from(format!("{}\n", json!({"type": word, "object": object}))));
    }

    fn bookmark(&mut self, initial_events_end: bool) {
        self.next_bookmark = Instant::now() + self.query.bookmark_interval;
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let bookmark = match self.query.form {
            Form::Plain | Form::Discovery => {
                json!({"apiVersion": self.target.api_version(), "kind": self.target.spec.kind, "metadata": metadata})
            }
            Form::Metadata => {
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
            }
            Form::Table => json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "Table",
                "metadata": {"resourceVersion": self.cursor.to_string()}, "columnDefinitions": null,
                "rows": [{"cells": [], "object": {
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata,
                }}],
            }),
        };
        self.push_value("BOOKMARK", &bookmark);
    }

    /// Takes some of the pending lines.
    fn take(&mut self) -> Option<Bytes> {
        let first = self.pending.pop_front()?;
        if self.pending.is_empty() {
            return Some(first);
        }
        let mut piece = BytesMut::from(first.as_ref());
        while piece.len() < PIECE
            && let Some(next) = self.pending.pop_front()
        {
            piece.extend_from_slice(&next);
        }
        Some(piece.freeze())
    }
}

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
        Form::Metadata => json_answer(200, &table::metadata_of_page(&page)),
        Form::Table => {
            json_answer(200, &table::of_page(&page, Include::parse(query.get("includeObject")), api.clock().now()))
        }
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
pub(crate) fn answer_watch(
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
    Ok(watch(api, &target, history, setting.faults, setting.ended, watch_query))
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
