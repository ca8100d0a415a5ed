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

use super::{
    Server,
    answer::{Answer, Cut, json_answer, list_answer, opening, stream_answer},
    handle::{Received, target_of},
    route::{Form, Query, token_of},
    table::{self, Include},
};
use crate::{
    api::{
        Change, ChangeKind, FieldSelector, Forgotten, History, LabelSelector, Object, PageQuery, Refusal, Resource,
        Selection, Target, parse_revision, seen, too_old,
    },
    faults::{About, WatchFault},
};

/// The number of bytes that are sent at once.
const PIECE: usize = 64 * 1024;

const NOT_OLDER_THAN: &str = "NotOlderThan";

pub(super) fn selection(query: &Query, namespace: &str) -> Result<Selection, Refusal> {
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
    let details = json!({
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

pub(super) fn list(
    server: &Server,
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
    let (selection, token) = (selection(query, namespace)?, query.get("continue").map(str::to_owned));
    let page = server.api.page(resource, &PageQuery { selection, not_older_than, limit, token })?;
    Ok(match form {
        Form::Plain | Form::Discovery => list_answer(page),
        Form::Metadata => json_answer(200, &table::metadata_of_page(&page)),
        Form::Table => json_answer(200, &table::of_page(&page, Include::of(query), server.api.clock().now())),
    })
}

pub(super) fn answer_watch(
    server: &Server,
    received: &Received,
    resource: &Resource,
    selection: Selection,
    form: Form,
) -> Result<Answer, Refusal> {
    let (api, query) = (&server.api, &received.query);
    if form == Form::Metadata {
        // Nobody watches metadata alone.
        return Err(Refusal::not_acceptable(&["application/json"]));
    }
    let initial = query.get("sendInitialEvents").map(|text| text == "true" || text == "1");
    check_initial(query, initial)?;
    let revision = query.get("resourceVersion").map(parse_revision).transpose()?;
    let (target, history) = api.history(resource)?;
    selection.fields.check(&target.spec)?;
    let present =
        |not_older_than| api.page(resource, &PageQuery { not_older_than, ..PageQuery::all(selection.clone()) });
    let (cursor, page) = match (initial, revision) {
        (None, Some(revision @ 1..)) => (revision, None),
        (Some(false), revision) => (revision.filter(|&revision| revision > 0).unwrap_or_else(|| api.revision()), None),
        (Some(true), revision) => present(revision).map(|page| (page.revision, Some(page)))?,
        (None, None | Some(0)) => present(None).map(|page| (page.revision, Some(page)))?,
    };
    let now = Instant::now();
    let timeout = query.number("timeoutSeconds")?.filter(|&seconds| seconds > 0).map(Duration::from_secs);
    let mut watch = Watch {
        opening: opening(&target.api_version(), &target.spec.kind),
        server: server.clone(),
        target,
        selection,
        form,
        include: Include::of(query),
        bookmarks: query.flag("allowWatchBookmarks"),
        path: target_of(&received.parts),
        token: token_of(&received.parts.headers).map(str::to_owned),
        wake: history.subscribe(),
        history,
        faults_changed: server.faults.subscribe(),
        met: BTreeMap::new(),
        cursor,
        follows: page.is_some(),
        pending: VecDeque::new(),
        headings_sent: false,
        next_bookmark: now + server.settings.bookmark_interval,
        deadline: timeout.map(|timeout| now + timeout),
        state: Flow::Open,
    };
    for object in page.into_iter().flat_map(|page| page.objects) {
        watch.push(ChangeKind::Added, &object);
    }
    if initial == Some(true) {
        watch.bookmark(true);
    }
    Ok(stream_answer(stream::unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((piece, watch))
    })))
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

struct Watch {
    server: Server,
    target: Target,
    selection: Selection,
    form: Form,
    include: Include,
    bookmarks: bool,
    /// The path and the bearer token of the request, for faults.
    path: String,
    token: Option<String>,
    opening: Bytes,
    history: Arc<History>,
    wake: watch::Receiver<u64>,
    faults_changed: watch::Receiver<()>,
    met: BTreeMap<u64, Option<WatchFault>>,
    /// The revision up to which all changes were seen.
    cursor: u64,
    /// True once it has got all changes up to its cursor, so that it doesn't begin from an older revision.
    follows: bool,
    pending: VecDeque<Bytes>,
    headings_sent: bool,
    next_bookmark: Instant,
    deadline: Option<Instant>,
    state: Flow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Open,
    /// The pending lines are sent, and then the watch ends.
    Ending,
    /// The pending lines are sent, and then the connection is cut.
    Cutting,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        loop {
            self.meet_faults();
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
        let bookmark = if self.bookmarks && !stalled { self.next_bookmark } else { far };
        tokio::select! {
            () = self.server.ended.cancelled() => return false,
            () = tokio::time::sleep_until(self.deadline.unwrap_or(far)), if self.deadline.is_some() => {
                if self.bookmarks && !stalled {
                    self.bookmark(false);
                }
                self.state = Flow::Ending;
            }
            () = tokio::time::sleep_until(bookmark) => if self.bookmarks && !stalled { self.bookmark(false) },
            // Both senders live as long as this watch.
            _ = self.wake.changed(), if !stalled => {}
            _ = self.faults_changed.changed() => {}
        }
        true
    }

    /// Reads the changes since the last call.
    fn read(&mut self) {
        // The revision is read first: all changes up to it are in the history then.
        let revision = self.server.api.revision();
        let changes = if self.follows { self.history.following(self.cursor) } else { self.history.after(self.cursor) };
        match changes {
            Err(forgotten) => self.expire(forgotten),
            Ok(changes) => {
                self.follows = true;
                for change in &changes.list {
                    self.deliver(change);
                    self.cursor = change.revision;
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
        let Some((kind, object)) = seen(change, &self.selection) else { return };
        self.push(kind, &object);
        if self.is_met(WatchFault::Duplicate) {
            self.push(kind, &object);
        }
    }

    fn meet_faults(&mut self) {
        let about = About { method: "GET", verb: "watch", target: &self.path, token: self.token.as_deref() };
        for fault in self.server.faults.meet(&about, &mut self.met) {
            match fault {
                WatchFault::Cut => self.state = Flow::Cutting,
                WatchFault::Expire => self.expire(Forgotten { oldest: self.cursor + 1 }),
                WatchFault::Stall | WatchFault::Duplicate => {}
            }
        }
    }

    fn is_met(&self, fault: WatchFault) -> bool {
        self.met.values().any(|met| *met == Some(fault))
    }

    fn push(&mut self, kind: ChangeKind, object: &Object) {
        let word = match kind {
            ChangeKind::Added => "ADDED",
            ChangeKind::Modified => "MODIFIED",
            ChangeKind::Deleted => "DELETED",
        };
        if self.form == Form::Table {
            let mut shown = table::of_one(&self.target, object.value(), self.include, self.server.api.clock().now());
            if std::mem::replace(&mut self.headings_sent, true) {
                shown["columnDefinitions"] = Value::Null;
            }
            return self.push_value(word, &shown);
        }
        let mut event = BytesMut::with_capacity(object.tail_len() + self.opening.len() + 40);
        event.extend_from_slice(format!("{{\"type\":\"{word}\",\"object\":").as_bytes());
        event.extend_from_slice(&self.opening);
        object.write_tail(&mut event);
        event.extend_from_slice(b"}\n");
        self.pending.push_back(event.freeze());
    }

    fn push_value(&mut self, word: &str, object: &Value) {
        self.pending.push_back(Bytes::from(format!("{}\n", json!({"type": word, "object": object}))));
    }

    fn bookmark(&mut self, initial_events_end: bool) {
        self.next_bookmark = Instant::now() + self.server.settings.bookmark_interval;
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut bookmark =
            json!({"apiVersion": self.target.api_version(), "kind": self.target.spec.kind, "metadata": metadata});
        if self.form == Form::Table {
            bookmark = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "Table",
                "metadata": {"resourceVersion": self.cursor.to_string()}, "columnDefinitions": null,
                "rows": [{"cells": [], "object": table::metadata_of(&bookmark)}],
            });
        }
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
