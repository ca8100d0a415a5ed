//! The events that wait for one handler, merged by key: at most two per object, however often it changes. The store
//! fills the queue, and the handler's task empties it. Must never let a handler receive a state older than one it has
//! received, nor a change of an object that it doesn't know; nor let a slow one delay anything but lists, for a while;
//! nor run a handler while a lock is held, or let its panic escape.

use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    event::{Event, Handler},
    progress::{Gauge, Progress},
};
use crate::object::ObjectKey;

/// The capacity that an empty queue keeps.
const KEPT: usize = 256;
/// The number of events that a task delivers before it yields to others of its thread.
const BATCH: usize = 128;
/// The maximum time before a task yields, so that other tasks of the thread wait for one slow call, not for many. By
/// tokio's clock: under a paused one the number of events alone decides, however slow the machine is.
const TURN: Duration = Duration::from_millis(1);

/// The next call of a handler.
#[derive(Debug)]
pub(super) enum Next<T> {
    /// A change of an object.
    Event(Event<T>),
    /// All objects of the first complete list have been delivered.
    Synced,
}

/// Waiting events, in the order in which their objects were queued first.
#[derive(Debug)]
struct Queue<T> {
    pending: HashMap<ObjectKey, Waiting<T>>,
    /// The order of arrival. A number finds the entry to remove for an object that was created and deleted meanwhile.
    order: BTreeMap<u64, Turn>,
    /// The number of the next arrival.
    arrival: u64,
}

#[derive(Debug)]
enum Turn {
    Object(ObjectKey),
    Synced,
}

#[derive(Debug)]
struct Waiting<T> {
    arrival: u64,
    events: Pending<T>,
}

#[derive(Debug)]
enum Pending<T> {
    One(Event<T>),
    /// An object was deleted and another one created under its name.
    Replaced {
        deleted: Event<T>,
        added: Event<T>,
    },
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { pending: HashMap::new(), order: BTreeMap::new(), arrival: 0 }
    }
}

impl<T> Queue<T> {
    fn push(&mut self, event: Event<T>) {
        let key = event.key();
        let Some(waiting) = self.pending.remove(&key) else {
            let arrival = self.arrive(Turn::Object(key.clone()));
            self.wait(key, arrival, Pending::One(event));
            return;
        };
        match merge(waiting.events, event) {
            Some(events) => self.wait(key, waiting.arrival, events),
            None => {
                self.order.remove(&waiting.arrival);
            }
        }
    }

    /// Queues the call of [`super::Handler::synced`] behind all current entries.
    fn push_synced(&mut self) {
        self.arrive(Turn::Synced);
    }

    fn len(&self) -> usize {
        self.pending.len()
    }

    fn pop(&mut self) -> Option<Next<T>> {
        let Some((arrival, turn)) = self.order.pop_first() else {
            // The memory of a long first list isn't kept.
            self.pending.shrink_to(KEPT);
            return None;
        };
        let key = match turn {
            Turn::Synced => return Some(Next::Synced),
            Turn::Object(key) => key,
        };
        match self.pending.remove(&key)?.events {
            Pending::One(event) => Some(Next::Event(event)),
            Pending::Replaced { deleted, added } => {
                self.order.insert(arrival, Turn::Object(key.clone()));
                self.wait(key, arrival, Pending::One(added));
                Some(Next::Event(deleted))
            }
        }
    }

    fn arrive(&mut self, turn: Turn) -> u64 {
        let arrival = self.arrival;
        self.arrival += 1;
        self.order.insert(arrival, turn);
        arrival
    }

    fn wait(&mut self, key: ObjectKey, arrival: u64, events: Pending<T>) {
        self.pending.insert(key, Waiting { arrival, events });
    }
}

/// Merges another event into those that wait for an object. Returns `None` if the handler needs none of them.
fn merge<T>(waiting: Pending<T>, event: Event<T>) -> Option<Pending<T>> {
    let merged = match (waiting, event) {
        (Pending::One(Event::Added { .. }), Event::Deleted { .. }) => return None,
        // A store sends no two deletes in a row, so either one will do.
        (Pending::One(Event::Updated { .. } | Event::Deleted { .. }), deleted @ Event::Deleted { .. })
        | (Pending::Replaced { deleted, .. }, Event::Deleted { .. }) => Pending::One(deleted),
        (
            Pending::One(Event::Added { initial, .. }),
            Event::Added { object, .. } | Event::Updated { new: object, .. },
        ) => Pending::One(Event::Added { object, initial }),
        (Pending::One(Event::Updated { old, .. }), Event::Added { object: new, .. } | Event::Updated { new, .. }) => {
            Pending::One(Event::Updated { old, new })
        }
        (
            Pending::One(deleted @ Event::Deleted { .. }) | Pending::Replaced { deleted, .. },
            Event::Added { object, .. } | Event::Updated { new: object, .. },
        ) => Pending::Replaced { deleted, added: Event::Added { object, initial: false } },
    };
    Some(merged)
}

/// The number of objects queued for a handler beyond which a list waits for it.
pub(super) const CAPACITY: usize = 1_000;

/// The state that the store and the handler's task share.
pub(super) struct Slot<T> {
    queue: Mutex<Queue<T>>,
    /// Notified when events were queued.
    filled: Notify,
    /// Notified when the queue has come down to [`CAPACITY`].
    caught_up: Notify,
    pub(super) gauge: Arc<Gauge>,
    /// Ends the handler's task.
    pub(super) removed: CancellationToken,
    /// True while the handler is called; changed only under the queue's lock.
    busy: AtomicBool,
}

impl<T> Slot<T> {
    /// Creates a slot that is cancelled with `parent`.
    pub(super) fn new(name: Arc<str>, parent: &CancellationToken) -> Self {
        Self {
            queue: Mutex::default(),
            filled: Notify::new(),
            caught_up: Notify::new(),
            gauge: Arc::new(Gauge::new(name)),
            removed: parent.child_token(),
            busy: AtomicBool::new(false),
        }
    }

    /// Queues an event without waking the handler's task. Cheap, since it runs under the store's lock.
    pub(super) fn push(&self, event: Event<T>) {
        let mut queue = self.queue.lock();
        queue.push(event);
        self.note_length(&queue);
    }

    /// Queues the call of [`super::Handler::synced`], like [`Self::push`].
    pub(super) fn push_synced(&self) {
        self.queue.lock().push_synced();
    }

    pub(super) fn wake(&self) {
        self.filled.notify_one();
    }

    /// Runs the handler's task: delivers queued events, until removed.
    pub(super) async fn run<H: Handler<T>>(self: Arc<Self>, mut handler: H, progress: Arc<Progress>) {
        let (mut delivered, mut turn) = (0_usize, Instant::now());
        while !self.removed.is_cancelled() {
            if !self.deliver_next(&mut handler, &progress) {
                tokio::select! {
                    () = self.filled.notified() => {}
                    () = self.removed.cancelled() => {}
                }
                (delivered, turn) = (0, Instant::now());
            }
            delivered += 1;
            if delivered >= BATCH || turn.elapsed() >= TURN {
                tokio::task::yield_now().await;
                (delivered, turn) = (0, Instant::now());
            }
        }
    }

    /// Delivers the next entry; returns false if there is none.
    pub(super) fn deliver_next<H: Handler<T>>(&self, handler: &mut H, progress: &Progress) -> bool {
        // The queue isn't locked while the handler runs.
        let Some(next) = self.pop() else {
            return false;
        };
        let synced = matches!(next, Next::Synced);
        let called = catch_unwind(AssertUnwindSafe(|| match next {
            Next::Event(event) => handler.handle(event),
            Next::Synced => handler.synced(),
        }));
        if called.is_err() {
            progress.handler_panicked();
            tracing::error!(
                resource = progress.resource(),
                handler = &*self.gauge.name,
                "an informer's handler panicked; it goes on with the next event"
            );
        }
        if synced {
            self.gauge.synced.send_replace(true);
        }
        true
    }

    pub(super) fn pop(&self) -> Option<Next<T>> {
        let mut queue = self.queue.lock();
        let next = queue.pop();
        self.note_length(&queue);
        self.busy.store(next.is_some(), Ordering::Relaxed);
        next
    }

    /// Shows the length of the queue, and wakes the lists that wait for it. Only called under the queue's lock.
    fn note_length(&self, queue: &Queue<T>) {
        let (before, now) = (self.gauge.queued.load(Ordering::Relaxed), queue.len());
        self.gauge.queued.store(now, Ordering::Relaxed);
        if before > CAPACITY && now <= CAPACITY {
            self.caught_up.notify_waiters();
        }
    }

    /// Returns true if a list should wait for this handler.
    pub(super) fn lags(&self) -> bool {
        self.gauge.queued.load(Ordering::Relaxed) > CAPACITY
    }

    /// Waits until the handler doesn't lag any more, or is removed.
    pub(super) async fn caught_up(&self) {
        // It receives every notification from here on.
        let caught_up = self.caught_up.notified();
        if !self.lags() {
            return;
        }
        tokio::select! {
            () = caught_up => {}
            () = self.removed.cancelled() => {}
        }
    }

    /// Returns true if no event waits for the handler, and it isn't being called.
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.len() == 0 && !self.busy.load(Ordering::Relaxed)
    }

    pub(super) fn has_synced(&self) -> bool {
        *self.gauge.synced.borrow()
    }

    /// Waits until [`super::Handler::synced`] was called or the handler is removed.
    pub(super) async fn synced(&self) {
        let mut synced = self.gauge.synced.subscribe();
        tokio::select! {
            _ = synced.wait_for(|synced| *synced) => {}
            () = self.removed.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metadata, Object};

    fn object(name: &str, version: u32) -> Arc<Object<u32>> {
        Arc::new(Object {
            metadata: Metadata {
                key: ObjectKey::cluster(name),
                uid: "".into(),
                resource_version: version.to_string().into(),
            },
            content: Ok(Arc::new(version)),
        })
    }

    fn added(name: &str, version: u32) -> Event<u32> {
        Event::Added { object: object(name, version), initial: true }
    }

    fn updated(name: &str, old: u32, new: u32) -> Event<u32> {
        Event::Updated { old: object(name, old), new: object(name, new) }
    }

    fn deleted(name: &str, last: u32) -> Event<u32> {
        Event::Deleted { last: object(name, last), found_by_relist: true }
    }

    fn shown(next: &Next<u32>) -> String {
        let version = |object: &Arc<Object<u32>>| object.metadata.resource_version.to_string();
        match next {
            Next::Synced => "synced".into(),
            Next::Event(event) => {
                let name = &event.object().metadata.key.name;
                match event {
                    Event::Added { object, initial } => {
                        let initial = if *initial { "!" } else { "" };
                        format!("+{name}{}{initial}", version(object))
                    }
                    Event::Updated { old, new } => {
                        format!("{name}{}>{}", version(old), version(new))
                    }
                    Event::Deleted { last, .. } => format!("-{name}{}", version(last)),
                }
            }
        }
    }

    fn drain(queue: &mut Queue<u32>) -> Vec<String> {
        std::iter::from_fn(|| queue.pop().as_ref().map(shown)).collect()
    }

    #[rstest::rstest]
    #[case::add_then_update_is_the_latest_add(vec![added("a", 1), updated("a", 1, 2)], &["+a2!"])]
    #[case::updates_join_end_to_end(vec![updated("a", 1, 2), updated("a", 2, 3)], &["a1>3"])]
    #[case::an_object_never_seen_is_never_mentioned(vec![added("a", 1), deleted("a", 2)], &[])]
    #[case::update_then_delete_is_the_delete(vec![updated("a", 1, 2), deleted("a", 3)], &["-a3"])]
    #[case::a_replaced_object_is_both(vec![deleted("a", 1), added("a", 2)], &["-a1", "+a2"])]
    #[case::a_replaced_object_that_changes(vec![deleted("a", 1), added("a", 2), updated("a", 2, 3)], &["-a1", "+a3"])]
    #[case::a_replaced_object_that_goes(vec![deleted("a", 1), added("a", 2), deleted("a", 3)], &["-a1"])]
    #[case::objects_come_in_the_order_of_their_first_arrival(
        vec![added("b", 1), added("a", 2), updated("b", 1, 3), added("c", 4)], &["+b3!", "+a2!", "+c4!"])]
    fn waiting_events_of_one_object_merge(#[case] events: Vec<Event<u32>>, #[case] expected: &[&str]) {
        let mut queue = Queue::default();
        for event in events {
            queue.push(event);
        }
        assert_eq!(drain(&mut queue), expected);
        assert!(queue.pending.is_empty() && queue.order.is_empty());
    }

    #[test]
    fn synced_comes_after_all_that_waited_and_before_what_is_new() {
        let mut queue = Queue::default();
        queue.push(added("a", 1));
        queue.push_synced();
        queue.push(added("b", 2));
        queue.push(updated("a", 1, 3));
        assert_eq!(drain(&mut queue), ["+a3!", "synced", "+b2!"]);
    }

    #[test]
    fn memory_of_a_long_list_is_given_back() {
        let mut queue = Queue::default();
        for n in 0..10_000 {
            queue.push(added(&n.to_string(), 1));
        }
        assert_eq!(drain(&mut queue).len(), 10_000);
        assert!(queue.pending.capacity() < 1000);
    }

    #[test]
    fn objects_that_come_and_go_unseen_take_no_memory() {
        let mut queue = Queue::default();
        for n in 0..1000 {
            queue.push(added(&n.to_string(), 1));
            queue.push(deleted(&n.to_string(), 1));
        }
        assert!(queue.order.is_empty() && queue.pending.is_empty());
    }
}
