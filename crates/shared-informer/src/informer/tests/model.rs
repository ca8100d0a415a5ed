//! Property test: after any history of a cluster, reported by watches and lists in any mix, for all namespaces or for
//! each, with any faults, the store, its index and every handler hold the cluster's objects, and each handler has
//! received every object's changes in order.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::{
    Metadata, NamespaceLimit,
    informer::{
        progress::Progress,
        queue::Slot,
        store::{Listing, Store},
        stored::{Amount, memory_of},
    },
    projection::no_identity,
};
use tokio_util::sync::CancellationToken;

const NAMESPACES: [&str; 2] = ["one", "two"];
const HANDLERS: usize = 3;

/// A widget with its own metadata, so that a store may keep only this content.
#[derive(Debug)]
struct Widget {
    meta: Metadata,
    size: i64,
}

/// The content of a widget: uid, version, size.
type State = (u64, u64, i64);
type Content = BTreeMap<ObjectKey, State>;

#[derive(Debug, Clone)]
enum Step {
    /// Creates or changes an object; the watch reports it if it is on.
    Put(u8, i64),
    /// Deletes an object and creates it again in one step.
    Replace(u8, i64),
    Delete(u8),
    /// The watch of a scope misses all changes until its next list.
    Lose(u8),
    /// The watch repeats an earlier event of its own or of its list, possibly of an object that is deleted.
    Repeat(prop::sample::Index),
    /// Removes the kind with all its objects; if true, the watches report the deletions before they end.
    Uninstall(bool),
    /// Lists a scope in pages of this size.
    List(u8, usize),
    /// Lists a scope, but ends after the first page.
    TornList(u8, usize),
    /// Lists a scope, but fails after the first page, and drops what is new of it.
    GiveUpList(u8, usize),
    /// Lists a scope object by object, while the cluster changes.
    Stream(u8, Vec<(u8, Option<i64>)>),
    /// Adds a handler in a free slot, or removes the one there.
    Handler(u8),
    /// Runs a handler's task.
    Drain(u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let meanwhile = prop::collection::vec((0..8_u8, prop::option::of(0..4_i64)), 0..4);
    let step = prop_oneof![
        6 => (0..8_u8, -1..4_i64).prop_map(|(n, size)| Step::Put(n, size)),
        2 => (0..8_u8, 0..4_i64).prop_map(|(n, size)| Step::Replace(n, size)),
        3 => (0..8_u8).prop_map(Step::Delete),
        1 => (0..2_u8).prop_map(Step::Lose),
        4 => any::<prop::sample::Index>().prop_map(Step::Repeat),
        1 => any::<bool>().prop_map(Step::Uninstall),
        1 => (0..2_u8, 1..5_usize).prop_map(|(scope, page)| Step::List(scope, page)),
        1 => (0..2_u8, 1..5_usize).prop_map(|(scope, page)| Step::TornList(scope, page)),
        1 => (0..2_u8, 1..5_usize).prop_map(|(scope, page)| Step::GiveUpList(scope, page)),
        1 => (0..2_u8, meanwhile).prop_map(|(scope, meanwhile)| Step::Stream(scope, meanwhile)),
        1 => (0..3_u8).prop_map(Step::Handler),
        2 => (0..3_u8, 0..4_u8).prop_map(|(place, n)| Step::Drain(place, n)),
    ];
    prop::collection::vec(step, 0..160)
}

fn object(key: &ObjectKey, (uid, version, size): (u64, u64, i64)) -> Object<Widget> {
    let metadata =
        Metadata { key: key.clone(), uid: uid.to_string().into(), resource_version: version.to_string().into() };
    let content = match size {
        -1 => Err(crate::DecodeError::new("odd")),
        size => Ok(Arc::new(Widget { meta: metadata.clone(), size })),
    };
    Object { metadata, content }
}

fn content(object: &Object<Widget>) -> (u64, u64, i64) {
    let size = object.decoded().map_or(-1, |widget| widget.size);
    let uid = object.metadata.uid.to_string().parse().unwrap();
    (uid, object.metadata.resource_version.number().unwrap(), size)
}

/// The list and watch of one namespace, or of all.
#[derive(Default)]
struct Scope {
    watching: bool,
    listed: bool,
}

#[derive(Clone)]
enum Sent {
    Put(ObjectKey, State),
    Delete(ObjectKey, State),
}

struct World {
    cluster: Content,
    version: u64,
    /// One scope for all namespaces, or one for each.
    scopes: Vec<Scope>,
    /// The objects of the last list of any scope, and the events of watches since then.
    sent: Vec<Sent>,
    store: Arc<Store<Widget>>,
}

impl World {
    fn key(n: u8) -> ObjectKey {
        ObjectKey::new(NAMESPACES[usize::from(n % 2)], n.to_string())
    }

    fn scope_of(&self, key: &ObjectKey) -> usize {
        NAMESPACES.iter().position(|name| *name == key.namespace).unwrap() % self.scopes.len()
    }

    /// Returns the namespace that a scope covers; `None` for all.
    fn namespace_of(&self, scope: usize) -> Option<&'static str> {
        (self.scopes.len() > 1).then(|| NAMESPACES[scope])
    }

    fn send(&mut self, sent: Sent) {
        match &sent {
            Sent::Put(key, content) => self.store.batch().put(object(key, *content)),
            Sent::Delete(key, content) => self.store.batch().delete(object(key, *content)),
        };
        self.sent.push(sent);
    }

    fn put(&mut self, n: u8, size: i64, replace: bool) {
        let key = Self::key(n);
        self.version += 1;
        let uid = self.cluster.get(&key).map(|held| held.0).filter(|_| !replace).unwrap_or(self.version);
        let content = (uid, self.version, size);
        self.cluster.insert(key.clone(), content);
        if self.scopes[self.scope_of(&key)].watching {
            self.send(Sent::Put(key, content));
        }
    }

    fn delete(&mut self, n: u8) {
        let key = Self::key(n);
        self.version += 1;
        if let Some((uid, _, size)) = self.cluster.remove(&key)
            && self.scopes[self.scope_of(&key)].watching
        {
            self.send(Sent::Delete(key, (uid, self.version, size)));
        }
    }

    /// Repeats an event, however late, or a state of the list as an event.
    fn repeat(&mut self, which: prop::sample::Index) {
        if self.sent.is_empty() {
            return;
        }
        let (Sent::Put(key, _) | Sent::Delete(key, _)) = which.get(&self.sent);
        if self.scopes[self.scope_of(key)].watching {
            self.send(which.get(&self.sent).clone());
        }
    }

    fn uninstall(&mut self, is_reported: bool) {
        for scope in &mut self.scopes {
            scope.watching &= is_reported;
        }
        (0..8).for_each(|n| self.delete(n));
        for scope in &mut self.scopes {
            scope.watching = false;
        }
    }

    fn begin_list(&mut self, scope: usize) -> (Listing, Vec<(ObjectKey, State)>) {
        self.sent.clear();
        self.scopes[scope].watching = false;
        let listing = self.store.begin_list(!self.scopes[scope].listed, self.namespace_of(scope));
        let covered = self.cluster.iter().filter(|(key, _)| self.scope_of(key) == scope);
        let covered: Vec<_> = covered.map(|(key, content)| (key.clone(), *content)).collect();
        self.sent.extend(covered.iter().map(|(key, content)| Sent::Put(key.clone(), *content)));
        (listing, covered)
    }

    fn end_list(&mut self, scope: usize, listing: Listing) {
        self.scopes[scope] = Scope { watching: true, listed: true };
        self.store.end_list(listing, self.namespace_of(scope));
    }

    fn list(&mut self, scope: u8, page: usize, pages: usize) {
        let scope = usize::from(scope) % self.scopes.len();
        let (listing, all) = self.begin_list(scope);
        for page in all.chunks(page).take(pages) {
            self.store.apply_page(listing, page.iter().map(|(key, content)| object(key, *content))).unwrap();
        }
        if pages.saturating_mul(page) >= all.len() {
            self.end_list(scope, listing);
        }
    }

    /// Fails after the first page of a list, and drops what is new. What was known before, by whichever watch, stays.
    fn give_up_list(&mut self, scope: u8, page: usize) {
        let number = usize::from(scope) % self.scopes.len();
        let is_known = self.scopes[number].watching;
        let of_scope = |world: &Self| -> Vec<_> {
            let all = world.store.list().into_iter().map(|object| object.key());
            all.filter(|key| world.scope_of(key) == number).collect()
        };
        let before = of_scope(self);
        self.list(scope, page, 1);
        if self.scopes[number].watching {
            return;
        }
        self.store.drop_unlisted(self.namespace_of(number));
        let after = of_scope(self);
        assert!(!is_known || before.iter().all(|key| after.contains(key)), "of {before:?} only {after:?} are left");
    }

    /// Streams a list: the objects that the cluster had when the stream began arrive one by one; later changes arrive
    /// as on a watch, after the objects that they concern.
    fn stream(&mut self, scope: u8, meanwhile: &[(u8, Option<i64>)]) {
        let scope = usize::from(scope) % self.scopes.len();
        let (listing, all) = self.begin_list(scope);
        for (key, content) in all {
            self.store.apply_page(listing, [object(&key, content)]).unwrap();
        }
        for (n, size) in meanwhile {
            let key = Self::key(*n);
            let before = self.cluster.get(&key).copied();
            let old = before.map(|before| object(&key, before));
            match size {
                Some(size) => self.put(*n, *size, false),
                None => self.delete(*n),
            }
            if self.scope_of(&key) != scope {
                continue;
            }
            match (self.cluster.get(&key), before) {
                (Some(now), _) => {
                    self.store.apply_page(listing, [object(&key, *now)]).unwrap();
                }
                (None, Some((uid, _, size))) => {
                    self.store.batch().delete(object(&key, (uid, self.version, size)));
                }
                (None, None) => {}
            }
            // The earlier state arrives once more, out of date.
            if let Some(old) = old {
                self.store.apply_page(listing, [old]).unwrap();
            }
        }
        self.end_list(scope, listing);
    }
}

/// A copy of the store, built only from the events that a handler receives.
#[derive(Default)]
struct Mirror {
    content: Content,
    synced: u32,
}

impl Handler<Widget> for Arc<Mutex<Mirror>> {
    fn handle(&mut self, event: Event<Widget>) {
        let mut mirror = self.lock();
        let key = event.key();
        let known = mirror.content.get(&key).copied();
        match event {
            Event::Added { object, initial } => {
                assert_eq!(known, None, "added twice");
                assert!(!initial || mirror.synced == 0, "nothing is initial after the first list");
                mirror.content.insert(key, content(&object));
            }
            Event::Updated { old, new } => {
                assert_eq!(known, Some(content(&old)), "updated from what was never reported");
                assert_eq!(content(&old).0, content(&new).0, "an update keeps the uid");
                assert!(content(&old).1 < content(&new).1, "an update goes forward");
                mirror.content.insert(key, content(&new));
            }
            Event::Deleted { last, .. } => {
                assert_eq!(known.unwrap().0, content(&last).0, "deleted unseen");
                mirror.content.remove(&key);
            }
        }
    }

    fn synced(&mut self) {
        self.lock().synced += 1;
    }
}

/// A handler with its slot, run by hand.
struct Listener {
    slot: Arc<Slot<Widget>>,
    mirror: Arc<Mutex<Mirror>>,
}

impl Listener {
    fn add(store: &Store<Widget>, cancel: &CancellationToken) -> Self {
        let slot = Arc::new(Slot::new("test".into(), cancel));
        store.add_handler(Arc::clone(&slot));
        Self { slot, mirror: Arc::default() }
    }

    /// Delivers at most `most` events.
    fn drain(&self, most: usize, progress: &Progress) {
        let mut handler = Arc::clone(&self.mirror);
        for _ in 0..most {
            if !self.slot.deliver_next(&mut handler, progress) {
                return;
            }
        }
    }
}

fn play(world: &mut World, listeners: &mut [Option<Listener>], step: Step, cancel: &CancellationToken, p: &Progress) {
    match step {
        Step::Put(n, size) => world.put(n, size, false),
        Step::Replace(n, size) => world.put(n, size, true),
        Step::Delete(n) => world.delete(n),
        Step::Lose(scope) => {
            let scope = usize::from(scope) % world.scopes.len();
            world.scopes[scope].watching = false;
        }
        Step::Repeat(which) => world.repeat(which),
        Step::Uninstall(is_reported) => world.uninstall(is_reported),
        Step::List(scope, page) => world.list(scope, page, usize::MAX),
        Step::TornList(scope, page) => world.list(scope, page, 1),
        Step::GiveUpList(scope, page) => world.give_up_list(scope, page),
        Step::Stream(scope, meanwhile) => world.stream(scope, &meanwhile),
        Step::Handler(place) => {
            let place = &mut listeners[usize::from(place)];
            *place = match place.take() {
                Some(listener) => {
                    world.store.remove_handler(&listener.slot);
                    None
                }
                None => Some(Listener::add(&world.store, cancel)),
            };
        }
        Step::Drain(place, most) => {
            if let Some(listener) = &listeners[usize::from(place)] {
                listener.drain(usize::from(most), p);
            }
        }
    }
}

fn identity_of(widget: &Widget) -> &Metadata {
    &widget.meta
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_history_leaves_everyone_with_what_the_cluster_holds(steps in steps(), namespaced: bool, alone: bool, limited: bool) {
        let cancel = CancellationToken::new();
        let query = if namespaced { Query::namespaced(widgets(), NAMESPACES) } else { Query::all(widgets()) };
        let scopes: Vec<_> = query.scopes().into_iter().map(|scope| scope.namespace).collect();
        let progress = Arc::new(Progress::new(&query, cancel.clone()));
        let identity: fn(&Widget) -> &Metadata = if alone { identity_of } else { no_identity };
        let bytes = |widget: &Widget| usize::from(widget.size % 2 == 0) * 100;
        let limit = limited.then_some(NamespaceLimit { objects: usize::MAX, bytes: usize::MAX });
        let settings = Settings { max_of_namespace: limit, ..Settings::default() };
        let store = Arc::new(Store::new(scopes.clone(), (identity, Some(bytes)), &settings, Arc::clone(&progress)));
        store.add_index("size", |object: &Object<Widget>| vec![content(object).2.to_string()]);
        let mut listeners: Vec<_> = (0..HANDLERS).map(|_| None).collect();
        listeners[0] = Some(Listener::add(&store, &cancel));
        let scopes = scopes.iter().map(|_| Scope::default()).collect();
        let mut world = World { cluster: Content::new(), version: 0, scopes, sent: Vec::new(), store };
        for step in steps {
            play(&mut world, &mut listeners, step, &cancel, &progress);
            for listener in listeners.iter().flatten() {
                let queued = listener.slot.gauge.status().queued;
                prop_assert!(queued <= 8, "{queued} wait for a handler, of 8 objects that there can be");
            }
        }
        // All events that a watch has sent since its list are applied, without another list.
        for object in world.store.list() {
            let followed = world.scopes[world.scope_of(&object.key())].watching;
            prop_assert!(!followed || world.cluster.contains_key(&object.key()), "{} came back", object.key());
        }
        for (key, state) in &world.cluster {
            let held = world.store.get(key).map(|object| content(&object));
            prop_assert!(!world.scopes[world.scope_of(key)].watching || held == Some(*state), "{key}: {held:?}");
        }
        // Recovery: every scope is listed, and every handler runs.
        (0..2).for_each(|scope| world.list(scope, 3, usize::MAX));
        let held: Content = world.store.list().iter().map(|o| (o.key(), content(o))).collect();
        prop_assert_eq!(&held, &world.cluster);
        for listener in listeners.iter().flatten() {
            listener.drain(usize::MAX, &progress);
            let mirror = listener.mirror.lock();
            prop_assert_eq!(&mirror.content, &world.cluster);
            prop_assert_eq!(mirror.synced, 1);
        }
        for size in -1..4_i64 {
            let indexed = world.store.by_index("size", &size.to_string()).unwrap();
            let indexed: Content = indexed.iter().map(|o| (o.key(), content(o))).collect();
            let expected: Content = held.iter().filter(|(_, c)| c.2 == size).map(|(k, c)| (k.clone(), *c)).collect();
            prop_assert_eq!(indexed, expected);
        }
        let memory = world.store.list().iter().map(|o| memory_of(&o.metadata, o.content.as_deref(), Some(bytes))).sum();
        prop_assert_eq!(world.store.amount(), Amount { objects: held.len(), bytes: memory });
        for namespace in NAMESPACES {
            let all = world.store.in_namespace(namespace);
            let bytes = all.iter().map(|o| memory_of(&o.metadata, o.content.as_deref(), Some(bytes))).sum();
            let amount = Amount { objects: all.len(), bytes };
            prop_assert_eq!(world.store.share_of(namespace), if limited { amount } else { Amount::default() });
        }
        let odd = held.values().filter(|content| content.2 == -1).count();
        prop_assert_eq!(world.store.undecodable().len(), odd);
        let status = progress.status();
        prop_assert_eq!((status.objects, status.undecodable, status.handler_panics), (held.len(), odd, 0));
    }
}
