//! The latest changes of one kind, in order, for watches that follow or resume; and lists, whole or in pages, whose further
//! pages show the state of the first. The history is bounded: a request for dropped changes is answered as expired.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::{Api, Object, Refusal, Resource, Selection, Target, object::ObjectKey};

/// The kind of a change to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The object was created or has become selected.
    Added,
    /// The object has a new state.
    Modified,
    /// The object is gone; this is its last state, with the revision of its removal.
    Deleted,
}

#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) kind: ChangeKind,
    pub(crate) object: Arc<Object>,
    /// The previous state, for selectors: an object may enter or leave the selection of a watch.
    pub(crate) previous: Option<Arc<Object>>,
}

/// The error that the requested changes were dropped; `oldest` is the earliest revision that a watch can resume from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forgotten {
    pub(crate) oldest: u64,
}

/// The changes that were read; `ended` is true if there will be no more.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) list: Vec<Arc<Change>>,
    pub(crate) ended: bool,
}

#[derive(Debug)]
pub(crate) struct History {
    log: Mutex<Log>,
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Log {
    changes: VecDeque<Arc<Change>>,
    /// The revision after which all changes are in `changes`.
    since: u64,
    /// The revision of the last change that was dropped; `since` may be later.
    dropped: u64,
    limit: usize,
    ended: bool,
}

impl Log {
    fn after(&self, revision: u64) -> Changes {
        let start = self.changes.partition_point(|change| change.revision <= revision);
        Changes { list: self.changes.range(start..).cloned().collect(), ended: self.ended }
    }
}

impl History {
    /// Creates an empty history of at most `limit` changes, for a kind that appears at `revision`.
    pub(crate) fn new(revision: u64, limit: usize) -> Self {
        // A watch may resume from before the kind existed, because the kind had no changes then.
        let log = Log { changes: VecDeque::new(), since: 0, dropped: 0, limit, ended: false };
        Self { log: Mutex::new(log), latest: watch::Sender::new(revision) }
    }

    /// Returns a copy of the history, for watches that begin now.
    pub(crate) fn anew(&self) -> Self {
        let log = self.log.lock();
        let changes = log.changes.clone();
        let log = Log { changes, since: log.since, dropped: log.dropped, limit: log.limit, ended: false };
        Self { log: Mutex::new(log), latest: watch::Sender::new(*self.latest.borrow()) }
    }

    pub(crate) fn push(&self, change: Change) {
        let revision = change.revision;
        let mut log = self.log.lock();
        log.changes.push_back(Arc::new(change));
        if log.changes.len() > log.limit
            && let Some(oldest) = log.changes.pop_front()
        {
            log.since = oldest.revision;
            log.dropped = oldest.revision;
        }
        drop(log);
        self.latest.send_replace(revision);
    }

    /// Returns the changes after `revision`, for those who begin there.
    pub(crate) fn after(&self, revision: u64) -> Result<Changes, Forgotten> {
        let log = self.log.lock();
        if revision < log.since {
            return Err(Forgotten { oldest: log.since });
        }
        Ok(log.after(revision))
    }

    /// Returns the changes after `revision`, for a watch that has got all before. It has expired only if it misses one:
    /// revisions also count the changes of other kinds.
    pub(crate) fn following(&self, revision: u64) -> Result<Changes, Forgotten> {
        let log = self.log.lock();
        if revision < log.dropped {
            return Err(Forgotten { oldest: log.since });
        }
        Ok(log.after(revision))
    }

    /// Drops all changes up to `revision`.
    pub(crate) fn forget(&self, revision: u64) {
        let mut log = self.log.lock();
        let kept = log.changes.partition_point(|change| change.revision <= revision);
        let dropped = log.changes.drain(..kept).next_back().map(|change| change.revision);
        log.dropped = dropped.unwrap_or(log.dropped);
        log.since = log.since.max(revision);
    }

    /// Drops all changes but the last `count`.
    pub(crate) fn keep(&self, count: usize) {
        let mut log = self.log.lock();
        let surplus = log.changes.len().saturating_sub(count);
        let dropped = log.changes.drain(..surplus).next_back().map(|change| change.revision);
        log.dropped = dropped.unwrap_or(log.dropped);
        log.since = log.since.max(log.dropped);
    }

    /// Ends the history: watches end once they have read the remaining changes.
    pub(crate) fn end(&self) {
        self.log.lock().ended = true;
        self.latest.send_modify(|_| {});
    }

    pub(crate) fn subscribers(&self) -> usize {
        self.latest.receiver_count()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }
}

/// A change of an object, as controllers read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The object, in the requested version.
    pub object: Arc<Value>,
    /// The revision of the change.
    pub revision: u64,
}

/// Returns a change as a selection sees it; `None` if it doesn't.
pub(crate) fn seen(change: &Change, selection: &Selection) -> Option<(ChangeKind, Arc<Object>)> {
    let inside = selection.namespace.is_empty() || change.object.key().namespace == selection.namespace;
    if !inside {
        return None;
    }
    let before = change.previous.as_ref().is_some_and(|previous| previous.is_in(selection));
    let after = change.kind != ChangeKind::Deleted && change.object.is_in(selection);
    match (before, after) {
        (false, false) => None,
        (false, true) => Some((ChangeKind::Added, Arc::clone(&change.object))),
        (true, true) => Some((ChangeKind::Modified, Arc::clone(&change.object))),
        (true, false) => {
            // An object that left the selection is shown as it was selected, under the revision of the change.
            let last = change.previous.as_ref().map(|previous| Arc::new(previous.at(change.revision)));
            Some((ChangeKind::Deleted, last.unwrap_or_else(|| Arc::clone(&change.object))))
        }
    }
}

/// Returns the refusal of a watch from a revision that the history has dropped.
pub(crate) fn too_old(wanted: u64, forgotten: Forgotten) -> Refusal {
    Refusal::expired(format!("too old resource version: {wanted} ({})", forgotten.oldest))
}

impl Api {
    /// Returns the changes after `revision`, in order, for controllers that follow a kind.
    pub fn changes(&self, resource: &Resource, selection: &Selection, revision: u64) -> Result<Vec<Event>, Refusal> {
        let (target, history) = self.history(resource)?;
        selection.fields.check(&target.spec)?;
        let changes = history.after(revision).map_err(|forgotten| too_old(revision, forgotten))?;
        let api_version = target.api_version();
        Ok(changes
            .list
            .iter()
            .filter_map(|change| {
                let (kind, object) = seen(change, selection)?;
                Some(Event { kind, object: object.under(&api_version), revision: change.revision })
            })
            .collect())
    }

    pub(crate) fn history(&self, resource: &Resource) -> Result<(Target, Arc<History>), Refusal> {
        let store = self.shared.store.read();
        let target = self.find(&store, resource)?;
        let table = store.table(target.id).ok_or_else(Refusal::no_such_resource)?;
        Ok((target, Arc::clone(&table.history)))
    }
}

/// The parameters of a list.
#[derive(Debug, Clone)]
pub(crate) struct PageQuery {
    pub(crate) selection: Selection,
    /// The revision that the list must not be older than.
    pub(crate) not_older_than: Option<u64>,
    /// The maximum number of objects of a page; `None` for all.
    pub(crate) limit: Option<usize>,
    /// The `continue` token of the previous page.
    pub(crate) token: Option<String>,
}

impl PageQuery {
    pub(crate) fn all(selection: Selection) -> Self {
        Self { selection, not_older_than: None, limit: None, token: None }
    }
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) target: Target,
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) revision: u64,
    /// The `continue` token of the next page, if there is one.
    pub(crate) token: Option<String>,
    /// The number of objects that follow; unknown with a selector.
    pub(crate) remaining: Option<usize>,
}

/// The position at which a list continues: after a key, in the state of a revision.
struct Token {
    /// The revision of the state; `None` for the latest one.
    revision: Option<u64>,
    /// The number of objects that follow; unknown with a selector.
    remaining: Option<usize>,
    after: ObjectKey,
}

impl Token {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let parse = || {
            let text = String::from_utf8(base64_decode(text)?).ok()?;
            let mut parts = text.splitn(4, '/');
            let revision = Some(parts.next()?).filter(|text| !text.is_empty());
            let revision = revision.map(str::parse).transpose().ok()?;
            let remaining = parts.next()?.parse().ok();
            Some(Self { revision, remaining, after: ObjectKey::new(parts.next()?, parts.next()?) })
        };
        parse().ok_or_else(|| Refusal::bad_request("continue key is not valid: it is none that this API gave out"))
    }

    fn to_text(&self) -> String {
        let number = |number: Option<String>| number.unwrap_or_default();
        let revision = number(self.revision.map(|revision| revision.to_string()));
        let remaining = number(self.remaining.map(|remaining| remaining.to_string()));
        base64_encode(&format!("{revision}/{remaining}/{}/{}", self.after.namespace, self.after.name))
    }
}

fn base64_encode(text: &str) -> String {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    BASE64_URL_SAFE_NO_PAD.encode(text)
}

fn base64_decode(text: &str) -> Option<Vec<u8>> {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

impl Api {
    pub(crate) fn page(&self, resource: &Resource, query: &PageQuery) -> Result<Page, Refusal> {
        let token = query.token.as_deref().map(Token::parse).transpose()?;
        let store = self.shared.store.read();
        let target = self.find(&store, resource)?;
        query.selection.fields.check(&target.spec)?;
        let now = store.revision();
        let at = token.as_ref().and_then(|token| token.revision);
        if let Some(wanted) = at.or(query.not_older_than).filter(|wanted| *wanted > now) {
            return Err(too_new(wanted, now));
        }
        let table = store.table(target.id).ok_or_else(Refusal::no_such_resource)?;
        let limit = query.limit.unwrap_or(usize::MAX);
        let (mut objects, mut more) = (Vec::new(), 0);
        // The objects that follow are counted once, on the first page, and only if they need not be matched for it.
        let count = query.selection.is_everything() && token.is_none();
        let after = token.as_ref().map(|token| &token.after);
        let walked = table.walk(at, &query.selection.namespace, after, |object| {
            if !object.is_in(&query.selection) {
                return true;
            }
            if objects.len() < limit {
                objects.push(Arc::clone(object));
                return true;
            }
            more += 1;
            count
        });
        drop(store);
        walked.map_err(|Forgotten { .. }| expired(token.as_ref()))?;
        let revision = at.unwrap_or(now);
        let remaining = match &token {
            Some(token) => token.remaining.map(|remaining| remaining.saturating_sub(objects.len())),
            None => count.then_some(more),
        };
        let remaining = remaining.filter(|_| more > 0);
        let last = objects.last().filter(|_| more > 0);
        let token = last.map(|last| Token { revision: Some(revision), remaining, after: last.key().clone() }.to_text());
        Ok(Page { target, objects, revision, token, remaining })
    }
}

fn too_new(wanted: u64, now: u64) -> Refusal {
    let message = format!("Too large resource version: {wanted}, current: {now}");
    let details = serde_json::json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    });
    Refusal { details: Some(Box::new(details)), ..Refusal::new(504, "Timeout", message) }
}

fn expired(token: Option<&Token>) -> Refusal {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                   new list without the continue parameter, or use the continue token in this response to retrieve \
                   the remainder of the results from the latest state, which may not be consistent with what came \
                   before.";
    let newer = token.map(|token| Token { revision: None, remaining: None, after: token.after.clone() }.to_text());
    Refusal { continue_token: newer, ..Refusal::expired(message) }
}

pub(crate) fn parse_revision(text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| {
        Refusal::new(400, "BadRequest", format!("invalid resource version {text:?}: it must be a whole number"))
    })
}
