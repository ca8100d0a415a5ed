//! Any history of a cluster, told by watches and lists in any mix, leaves a store, its index and every handler with what
//! the cluster holds.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::informer::{HandlerOptions, Metadata, progress::Progress, slot::Slot, store::Store};
use tokio_util::sync::CancellationToken;

/// What a key holds: uid, version, size.
type Content = BTreeMap<ObjectKey, (u64, u64, i64)>;

#[derive(Debug, Clone)]
enum Step {
    /// Creates or changes; told by the watch when it is on.
    Put(u8, i64),
    /// Deletes and creates again in one.
    Replace(u8, i64),
    Delete(u8),
    /// The watch misses what comes, until the next list.
    Lose,
    /// A list in pages of this size.
    List(usize),
    /// A list that ends after its first page.
    TornList(usize),
    /// The handler's task runs.
    Drain(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..8_u8, -1..4_i64).prop_map(|(n, size)| Step::Put(n, size)),
        2 => (0..8_u8, 0..4_i64).prop_map(|(n, size)| Step::Replace(n, size)),
        3 => (0..8_u8).prop_map(Step::Delete),
        1 => Just(Step::Lose),
        1 => (1..5_usize).prop_map(Step::List),
        1 => (1..5_usize).prop_map(Step::TornList),
        2 => (0..4_u8).prop_map(Step::Drain),
    ];
    prop::collection::vec(step, 0..120)
}

fn object(key: &ObjectKey, (uid, version, size): (u64, u64, i64)) -> Object<Widget> {
    let content = match size {
        -1 => Err(crate::informer::DecodeError::new("odd")),
        size => Ok(Arc::new(Widget { spec: Spec { size } })),
    };
    let metadata =
        Metadata { key: key.clone(), uid: uid.to_string().into(), resource_version: version.to_string().into() };
    Object { metadata, content }
}

fn content(object: &Object<Widget>) -> (u64, u64, i64) {
    let size = object.decoded().map_or(-1, |widget| widget.spec.size);
    let uid = object.metadata.uid.to_string().parse().unwrap();
    (uid, object.metadata.resource_version.number().unwrap(), size)
}

struct World {
    cluster: Content,
    version: u64,
    watching: bool,
    listed: bool,
    store: Store<Widget>,
}

impl World {
    fn put(&mut self, n: u8, size: i64, uid: Option<u64>) {
        let key = ObjectKey::new(["one", "two"][usize::from(n % 2)], n.to_string());
        self.version += 1;
        let held = self.cluster.get(&key);
        let uid = uid.or(held.map(|held| held.0)).unwrap_or(self.version);
        self.cluster.insert(key.clone(), (uid, self.version, size));
        if self.watching {
            self.store.put(object(&key, (uid, self.version, size)));
        }
    }

    fn delete(&mut self, n: u8) {
        let key = ObjectKey::new(["one", "two"][usize::from(n % 2)], n.to_string());
        self.version += 1;
        if let Some((uid, _, size)) = self.cluster.remove(&key)
            && self.watching
        {
            self.store.delete(object(&key, (uid, self.version, size)));
        }
    }

    fn list(&mut self, page: usize, pages: usize) {
        let listing = self.store.begin_list(!self.listed);
        let all: Vec<_> = self.cluster.iter().collect();
        let mut sent = 0;
        for page in all.chunks(page).take(pages) {
            sent += page.len();
            let objects = page.iter().map(|(key, content)| object(key, **content));
            self.store.apply_page(listing, objects);
        }
        self.watching = sent == all.len();
        if self.watching {
            self.store.end_list(listing, None);
            self.listed = true;
        }
    }
}

/// A handler's own picture, built from nothing but what it is told.
#[derive(Default)]
struct Mirror {
    content: Content,
    synced: u32,
}

impl Handler<Widget> for Arc<Mutex<Mirror>> {
    fn handle(&mut self, event: Event<Widget>) {
        let mut mirror = self.lock();
        let key = event.key();
        let told = mirror.content.get(&key).copied();
        match event {
            Event::Added { object, .. } => {
                assert_eq!(told, None, "added twice");
                mirror.content.insert(key, content(&object));
            }
            Event::Updated { old, new } => {
                assert_eq!(told, Some(content(&old)), "updated from what was never told");
                assert_eq!(content(&old).0, content(&new).0, "an update keeps the uid");
                mirror.content.insert(key, content(&new));
            }
            Event::Deleted { last, .. } => {
                assert_eq!(told.unwrap().0, content(&last).0, "deleted unseen");
                mirror.content.remove(&key);
            }
        }
    }

    fn synced(&mut self) {
        self.lock().synced += 1;
    }
}

proptest! {
    #[test]
    fn any_history_leaves_everyone_with_what_the_cluster_holds(steps in steps()) {
        let cancel = CancellationToken::new();
        let progress = Arc::new(Progress::new(&Query::all(widgets()), cancel.clone()));
        let store = Store::new(1, Arc::clone(&progress));
        store.add_index("size", |object: &Object<Widget>| vec![content(object).2.to_string()]);
        let slot = Arc::new(Slot::new(HandlerOptions::default(), &cancel));
        store.add_handler(Arc::clone(&slot));
        let mirror = Arc::new(Mutex::new(Mirror::default()));
        let mut handler = Arc::clone(&mirror);
        let mut world = World { cluster: Content::new(), version: 0, watching: false, listed: false, store };
        for step in steps {
            match step {
                Step::Put(n, size) => world.put(n, size, None),
                Step::Replace(n, size) => {
                    let uid = world.version + 1;
                    world.put(n, size, Some(uid));
                }
                Step::Delete(n) => world.delete(n),
                Step::Lose => world.watching = false,
                Step::List(page) => world.list(page, usize::MAX),
                Step::TornList(page) => world.list(page, 1),
                Step::Drain(n) => (0..n).for_each(|_| { slot.hand_over(&mut handler, &progress); }),
            }
        }
        world.list(3, usize::MAX);
        while slot.hand_over(&mut handler, &progress) {}

        let held: Content = world.store.list().iter().map(|o| (o.key(), content(o))).collect();
        prop_assert_eq!(&held, &world.cluster);
        let mirror = mirror.lock();
        prop_assert_eq!(&mirror.content, &world.cluster);
        prop_assert_eq!(mirror.synced, 1);
        for size in -1..4_i64 {
            let indexed = world.store.by_index("size", &size.to_string()).unwrap();
            let indexed: Content = indexed.iter().map(|o| (o.key(), content(o))).collect();
            let expected: Content = held.iter().filter(|(_, c)| c.2 == size).map(|(k, c)| (k.clone(), *c)).collect();
            prop_assert_eq!(indexed, expected);
        }
        let odd = held.values().filter(|content| content.2 == -1).count();
        prop_assert_eq!(world.store.undecodable().len(), odd);
        let status = progress.status();
        prop_assert_eq!((status.objects, status.undecodable, status.handler_panics), (held.len(), odd, 0));
    }
}
