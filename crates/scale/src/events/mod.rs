//! Kubernetes Events on node groups, for changes and refusals. A separate task posts them from a bounded queue. It must
//! never delay or fail a command: an Event that can't be posted is counted and dropped.
//!
//! kube's own recorder merges Events that differ only in their note, so that `size 2 → 5` would stand for every later
//! size; it also waits for each answer and has no limits.

mod reason;

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use connect::discovery::CoreResources;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use rules::{GroupId, capi::ScalableKind};
use serde_json::json;
use shared_informer::{Spawner, Uid};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::metrics::{EventResult, ScaleMetrics};

pub use crate::events::reason::EventReason;

pub(super) use crate::events::reason::{EventContent, asked_for_by};

/// The maximum number of queued Events.
const QUEUE: usize = 256;
/// The time for which Events may still be posted at the end.
const AT_THE_END: Duration = Duration::from_secs(1);

/// An event on a group: its content and its time.
#[derive(Clone, Debug)]
pub(super) struct Occurrence {
    group: GroupId,
    uid: Uid,
    content: EventContent,
    at: Timestamp,
}

/// Queues Events and posts them in the background.
#[derive(Clone, Default)]
pub struct EventRecorder {
    /// `None` if Events are turned off.
    running: Option<Arc<Running>>,
    /// The limit of one of many Clusters.
    own: Option<Arc<Mutex<Bucket>>>,
}

struct Running {
    sender: Sender<Occurrence>,
    metrics: ScaleMetrics,
    ended: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl EventRecorder {
    /// Returns a recorder that posts nothing.
    pub fn off() -> Self {
        Self::default()
    }

    /// Starts to post through `client` as this instance of the program. `resources` says how the kinds of groups are
    /// served.
    pub fn start(
        client: Client,
        resources: Arc<ArcSwapOption<CoreResources>>,
        instance: &str,
        metrics: ScaleMetrics,
        runtime: impl Into<Spawner>,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let ended = CancellationToken::new();
        let publisher = Publisher::new(Poster::new(client, resources, instance), metrics.clone());
        let task = runtime.into().spawn(publish(publisher, receiver, ended.clone()));
        let running = Running { sender, metrics, ended, task: Mutex::new(Some(task)) };
        Self { running: Some(Arc::new(running)), own: None }
    }

    /// Returns the same recorder for one of many Clusters, whose Events take no place in the queue beyond a limit of
    /// its own.
    pub fn of_one_of_many(&self) -> Self {
        Self { running: self.running.clone(), own: Some(Arc::new(Mutex::new(Bucket::new(Instant::now())))) }
    }

    /// Queues an Event on the group whose object has this uid.
    pub(super) fn record(&self, group: &GroupId, uid: &Uid, content: EventContent) {
        let Some(running) = &self.running else { return };
        if self.own.as_ref().is_some_and(|own| !own.lock().take(OF_A_CLUSTER, Instant::now())) {
            return running.metrics.count_events(EventResult::Limited, 1);
        }
        let occurrence = Occurrence { group: group.clone(), uid: uid.clone(), content, at: Timestamp::now() };
        if running.sender.try_send(occurrence).is_err() {
            running.metrics.count_events(EventResult::Dropped, 1);
        }
    }

    /// Posts the queued Events, for a second at most, and ends. Later ones are dropped, whichever clone records them.
    pub async fn end(&self) {
        let Some(running) = &self.running else { return };
        running.ended.cancel();
        let task = running.task.lock().take();
        if let Some(mut task) = task
            && timeout(AT_THE_END, &mut task).await.is_err()
        {
            task.abort();
        }
    }
}

async fn publish(mut publisher: Publisher, mut receiver: Receiver<Occurrence>, ended: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = ended.cancelled(), if !receiver.is_closed() => receiver.close(),
            occurrence = receiver.recv() => match occurrence {
                Some(occurrence) => publisher.take(occurrence).await,
                None => return,
            },
        }
    }
}

// Builds Events (`events.k8s.io/v1`, in the namespace of the group's object) and makes their API calls.

/// The `reportingController` of every Event.
const CONTROLLER: &str = "capi-autoscaler-provider";
/// The maximum length of a note in bytes; API servers accept 1 KiB.
const LONGEST_NOTE: usize = 1000;
/// The maximum length of the end of a note, which names its origin: as long as the names of three clients.
const LONGEST_ORIGIN: usize = 840;
/// The maximum length of the other texts in bytes.
const LONGEST_TEXT: usize = 128;
/// The maximum length of the object's name in that of its Event, which adds up to 17 characters; the API allows 253.
const LONGEST_NAME: usize = 230;
const ELLIPSIS: &str = "…";

/// An Event that the API server has stored.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The reason why an Event couldn't be posted.
#[derive(Debug)]
pub(super) enum NotPosted {
    /// The credentials aren't accepted, or the permission is missing.
    Forbidden(String),
    /// The Event of a series has expired, since Events live for an hour, or its namespace is gone.
    Gone,
    /// Any other failure.
    Failed(String),
}

pub(super) struct Poster {
    client: Client,
    resources: Arc<ArcSwapOption<CoreResources>>,
    instance: String,
    /// The number of Events so far, which makes names unique within one clock tick.
    posted: u64,
}

impl Poster {
    pub(super) fn new(client: Client, resources: Arc<ArcSwapOption<CoreResources>>, instance: &str) -> Self {
        let instance = if instance.is_empty() { CONTROLLER } else { instance };
        Self { client, resources, instance: clipped(instance, LONGEST_TEXT), posted: 0 }
    }

    fn api(&self, namespace: &str) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) async fn create(&mut self, occurrence: &Occurrence) -> Result<Posted, NotPosted> {
        self.posted += 1;
        let event = self.event(occurrence);
        let namespace = occurrence.group.key.namespace.to_string();
        self.api(&namespace).create(&PostParams::default(), &event).await.map_err(|error| not_posted(&error))?;
        Ok(Posted { namespace, name: event.metadata.name.unwrap_or_default() })
    }

    /// Updates the count of an Event's series.
    pub(super) async fn count(&self, event: &Posted, count: i32, last: Timestamp) -> Result<(), NotPosted> {
        let series = EventSeries { count, last_observed_time: MicroTime(last) };
        let patch = Patch::Merge(json!({"series": series}));
        let patched = self.api(&event.namespace).patch(&event.name, &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| not_posted(&error))
    }

    fn event(&self, occurrence: &Occurrence) -> Event {
        let Occurrence { group, uid, content, at } = occurrence;
        let (action, kind, _) = content.reason.kind();
        let name = clipped(&group.key.name, LONGEST_NAME);
        // A clipped name ends in an ellipsis, which no name may contain.
        let name = name.trim_end_matches(ELLIPSIS).trim_end_matches(['-', '.']);
        let tick = u64::try_from(at.as_nanosecond()).unwrap_or_default().wrapping_add(self.posted);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{tick:x}")),
                namespace: Some(group.key.namespace.to_string()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(*at)),
            type_: Some(kind.to_owned()),
            reason: Some(content.reason.as_str().to_owned()),
            action: Some(action.to_owned()),
            note: Some(note(content)),
            regarding: Some(ObjectReference {
                api_version: self.api_version(group.kind),
                kind: Some(group.kind.to_string()),
                namespace: Some(group.key.namespace.to_string()),
                name: Some(group.key.name.to_string()),
                uid: Some(uid.to_string()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }

    fn api_version(&self, kind: ScalableKind) -> Option<String> {
        let resources = self.resources.load();
        Some(resources.as_deref()?.scalable(kind)?.api_version.clone())
    }
}

fn not_posted(error: &kube::Error) -> NotPosted {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => NotPosted::Forbidden(status.message.clone()),
        kube::Error::Api(status) if status.code == 404 => NotPosted::Gone,
        _ => NotPosted::Failed(error.to_string()),
    }
}

/// Returns a note that the API server accepts. However long its text, its origin stays.
pub(super) fn note(content: &EventContent) -> String {
    let origin = clipped(&content.origin, LONGEST_ORIGIN);
    clipped(&content.note, LONGEST_NOTE - origin.len()) + &origin
}

/// Returns a foreign text on one line, clipped to `longest` bytes.
pub(super) fn clipped(text: &str, longest: usize) -> String {
    let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() > longest {
        let end = (0..=longest - ELLIPSIS.len()).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str(ELLIPSIS);
    }
    text
}

// Limits how many Events are posted: a burst and then a rate, for each group and for all groups together. A refusal
// that comes with every loop of the caller must not flood the API server.

/// The limit of one group.
const OF_A_GROUP: Rate = Rate { burst: 10, every: Duration::from_secs(30) };
/// The limit of one of many Clusters.
pub(super) const OF_A_CLUSTER: Rate = Rate { burst: 20, every: Duration::from_secs(1) };
/// The limit of all groups together.
const OF_ALL: Rate = Rate { burst: 50, every: Duration::from_millis(200) };
/// The number of groups from which on quiet ones are forgotten.
const MANY: usize = 1000;

/// A token bucket's size, and the time in which one token is added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    burst: u32,
    every: Duration,
}

/// The time at which the bucket is full again; no later than now if nothing was let through recently.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket(Instant);

impl Bucket {
    /// Returns a full bucket.
    pub(super) fn new(now: Instant) -> Self {
        Self(now)
    }

    /// Takes a token. Returns false if there is none.
    pub(super) fn take(&mut self, rate: Rate, now: Instant) -> bool {
        let made_up = self.0.max(now) + rate.every;
        let fits = made_up <= now + rate.every * rate.burst;
        if fits {
            self.0 = made_up;
        }
        fits
    }
}

/// The limits of each group and of all groups together.
#[derive(Debug)]
pub(super) struct Limit {
    all: Bucket,
    groups: HashMap<GroupId, Bucket>,
}

impl Limit {
    pub(super) fn new(now: Instant) -> Self {
        Self { all: Bucket::new(now), groups: HashMap::new() }
    }

    /// Takes a token for an Event of a group. Returns false if one of the limits is reached.
    pub(super) fn take(&mut self, group: &GroupId, now: Instant) -> bool {
        if self.groups.len() >= MANY {
            self.groups.retain(|_, bucket| bucket.0 > now);
        }
        let bucket = self.groups.entry(group.clone()).or_insert(Bucket::new(now));
        // An Event beyond the group's own limit must take no token of the others.
        let mut all = self.all;
        let mut own = *bucket;
        let fits = own.take(OF_A_GROUP, now) && all.take(OF_ALL, now);
        if fits {
            (*bucket, self.all) = (own, all);
        }
        fits
    }
}

// Repeated Events: one that equals an earlier one, note included, is counted in its series instead of being posted
// again.

/// The minimum time between two counts of a series that are sent, but for the first: a later occurrence sends those in
/// between too.
const COUNTED_EVERY: Duration = Duration::from_secs(30);
/// The time after which a quiet series is over; the next occurrence is a new Event.
const QUIET_FOR: Duration = Duration::from_secs(6 * 60);
/// The maximum number of series that are remembered.
const MOST_SERIES: usize = 1000;
/// The time for which nothing is posted after the API server has refused the permission.
const FORBIDDEN_FOR: Duration = Duration::from_secs(60);

/// A series of equal Events.
struct Series {
    posted: Posted,
    count: i32,
    /// The time of the last write to the API server.
    reported: Instant,
    seen: Instant,
}

/// Decides which Events are posted.
pub(super) struct Publisher {
    poster: Poster,
    metrics: ScaleMetrics,
    limit: Limit,
    series: HashMap<(Uid, EventContent), Series>,
    /// The time until which nothing is posted, for lack of the permission.
    forbidden_until: Option<Instant>,
    /// True if it has been logged that the permission is missing.
    reported_forbidden: bool,
}

impl Publisher {
    pub(super) fn new(poster: Poster, metrics: ScaleMetrics) -> Self {
        Self {
            poster,
            metrics,
            limit: Limit::new(Instant::now()),
            series: HashMap::new(),
            forbidden_until: None,
            reported_forbidden: false,
        }
    }

    /// Posts an Event, or counts it in its series.
    pub(super) async fn take(&mut self, occurrence: Occurrence) {
        let now = Instant::now();
        self.forget(now);
        if self.forbidden_until.is_some_and(|until| now < until) {
            return self.metrics.count_events(EventResult::Failed, 1);
        }
        let key = (occurrence.uid.clone(), occurrence.content.clone());
        let Some(series) = self.series.get_mut(&key) else { return self.post(key, occurrence, now).await };
        series.count = series.count.saturating_add(1);
        series.seen = now;
        let waits = series.count > 2 && series.reported + COUNTED_EVERY > now;
        if waits || !self.limit.take(&occurrence.group, now) {
            // The next count includes it.
            return self.metrics.count_events(EventResult::Sent, 1);
        }
        series.reported = now;
        let counted = self.poster.count(&series.posted, series.count, occurrence.at).await;
        if let Err(NotPosted::Gone) = counted {
            self.series.remove(&key);
            return self.post(key, occurrence, now).await;
        }
        let result = self.judge(counted);
        self.metrics.count_events(result, 1);
    }

    /// Posts an Event that begins a series.
    async fn post(&mut self, key: (Uid, EventContent), occurrence: Occurrence, now: Instant) {
        let result = if self.limit.take(&occurrence.group, now) {
            let posted = self.poster.create(&occurrence).await.map(|posted| {
                self.series.insert(key, Series { posted, count: 1, reported: now, seen: now });
            });
            self.judge(posted)
        } else {
            EventResult::Limited
        };
        self.metrics.count_events(result, 1);
    }

    /// Classifies the API server's answer. A missing permission is logged once, until it is granted again.
    fn judge(&mut self, result: Result<(), NotPosted>) -> EventResult {
        match result {
            Ok(()) => {
                self.reported_forbidden = false;
                EventResult::Sent
            }
            Err(NotPosted::Forbidden(why)) => {
                self.forbidden_until = Some(Instant::now() + FORBIDDEN_FOR);
                if !std::mem::replace(&mut self.reported_forbidden, true) {
                    tracing::warn!(
                        "no Events are posted: {why}; grant this program's user create and patch on events in \
                         events.k8s.io, or turn them off with --no-events"
                    );
                }
                EventResult::Failed
            }
            Err(NotPosted::Gone) => {
                tracing::debug!("an Event wasn't posted: its namespace is gone");
                EventResult::Failed
            }
            Err(NotPosted::Failed(why)) => {
                tracing::debug!("an Event wasn't posted: {why}");
                EventResult::Failed
            }
        }
    }

    /// Forgets series that are over, or all if there are too many.
    fn forget(&mut self, now: Instant) {
        self.series.retain(|_, series| series.seen + QUIET_FOR > now);
        if self.series.len() >= MOST_SERIES {
            self.series.clear();
        }
    }
}

#[cfg(test)]
mod tests;
