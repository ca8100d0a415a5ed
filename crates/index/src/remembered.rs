//! What is remembered of Nodes: the entries of each ConfigMap, with those of this process that aren't stored there yet.
//! All indexes of a program share it: one learns, others use what it has learned. Nothing here waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use parking_lot::Mutex;
use rules::{
    capi::ObjectKey,
    remembered::{self, Content, Entry, Key, LONGEST_ENTRY, MOST_ENTRIES, Offers, SetAside, Smaller, Templates},
};
use tokio::sync::watch;

/// The entries, in the memory of the program and in ConfigMaps.
#[derive(Debug)]
pub struct Memory {
    places: Mutex<Vec<Place>>,
    /// The templates whose entries have changed since the last notification.
    changed: Mutex<BTreeSet<Templates>>,
    notify: watch::Sender<()>,
    /// Notified when something may have to be stored.
    to_store: watch::Sender<()>,
}

/// A ConfigMap.
#[derive(Debug)]
struct Place {
    config_map: ObjectKey,
    /// The only namespace whose entries it holds; `None` for all.
    namespace: Option<ArcStr>,
    reading: Reading,
    /// The reason why it can't be written.
    unwritable: Option<ArcStr>,
    stored: Stored,
    /// The entries of this process that may have to be stored.
    own: BTreeMap<Key, Arc<Entry>>,
    /// Both together.
    all: BTreeMap<Key, Arc<Entry>>,
}

/// The state of a ConfigMap.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reading {
    /// It isn't read yet.
    Pending,
    /// It is read.
    Read,
    /// It can't be read, or isn't there, with the reason.
    Unreadable(ArcStr),
}

/// The content of a ConfigMap, and its version.
#[derive(Clone, Debug, Default)]
struct Stored {
    content: Content,
    version: ArcStr,
}

/// A ConfigMap for people and metrics.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlaceView {
    /// Its namespace and name.
    pub config_map: ObjectKey,
    /// Its state.
    pub reading: Reading,
    /// The reason why it can't be written.
    pub unwritable: Option<ArcStr>,
    /// The number of entries that are used.
    pub entries: usize,
    /// The entries that aren't used, with the reasons.
    pub set_aside: Vec<SetAside>,
}

/// A write of a ConfigMap.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryWrite {
    /// The ConfigMap.
    pub config_map: ObjectKey,
    /// The version that it must have.
    pub version: ArcStr,
    /// The changes of its data: new values, and `None` for keys to remove.
    pub data: BTreeMap<String, Option<String>>,
}

/// What a Node changed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Learned {
    /// True if the entry has changed.
    pub(super) changed: bool,
    /// What the Node has less of than was remembered, and the note on that.
    pub(super) smaller: Option<(Smaller, remembered::Seen)>,
    /// True if the Node has all that was remembered, also what may come late.
    pub(super) has_all: bool,
}

impl Memory {
    /// Returns a memory in these ConfigMaps. A single one is for the groups of all namespaces; one of several only for those
    /// of its own, so that whoever may write it can't change what other namespaces get.
    pub fn new(config_maps: &[ObjectKey]) -> Self {
        let of_one = config_maps.len() > 1;
        let place = |config_map: &ObjectKey| Place {
            namespace: of_one.then(|| config_map.namespace.clone()),
            config_map: config_map.clone(),
            reading: Reading::Pending,
            unwritable: None,
            stored: Stored::default(),
            own: BTreeMap::new(),
            all: BTreeMap::new(),
        };
        Self {
            places: Mutex::new(config_maps.iter().map(place).collect()),
            changed: Mutex::default(),
            notify: watch::Sender::new(()),
            to_store: watch::Sender::new(()),
        }
    }

    /// Returns the ConfigMaps.
    pub fn config_maps(&self) -> Vec<ObjectKey> {
        self.places.lock().iter().map(|place| place.config_map.clone()).collect()
    }

    /// Returns the entry of these templates with the stated architecture, else with the default one if there are several.
    pub(super) fn find(&self, templates: &Templates, stated: Option<&str>, default: &str) -> Option<(Key, Arc<Entry>)> {
        let places = self.places.lock();
        let place = places.iter().find(|place| place.is_of(&templates.namespace))?;
        let of_templates = || place.all.range(templates.first()..).take_while(|(key, _)| key.templates == *templates);
        let of = |arch: &str| of_templates().find(|(key, _)| key.arch() == arch);
        let found = match stated {
            Some(arch) => of(arch),
            None => of(default).or_else(|| of_templates().next()),
        };
        found.map(|(key, entry)| (key.clone(), Arc::clone(entry)))
    }

    /// Adds what a Node shows.
    pub(super) fn learn(&self, templates: &Templates, key: &Key, entry: &Entry) -> Learned {
        let mut places = self.places.lock();
        let Some(place) = places.iter_mut().find(|place| place.is_of(&key.templates.namespace)) else {
            return Learned::default();
        };
        let (known, merged) = match place.all.get(key) {
            Some(known) => (Some(known), known.merge(entry)),
            None => (None, entry.clone()),
        };
        let smaller = known.and_then(|known| Some((known.smaller(entry)?, known.seen.clone())));
        let has_all = known.is_none_or(|known| known.smaller(&entry.clone().settled()).is_none());
        if known.is_some_and(|known| !merged.is_news(known)) {
            return Learned { changed: false, smaller, has_all };
        }
        if !remembered::fits(&merged) {
            let (node, group) = (&entry.seen.node, &entry.seen.group);
            tracing::warn!(
                %node,
                %group,
                bytes = LONGEST_ENTRY,
                "what the Node shows is too long to be remembered beyond a restart"
            );
        }
        let merged = Arc::new(merged);
        place.own.insert(key.clone(), Arc::clone(&merged));
        place.all.insert(key.clone(), merged);
        place.keep_few();
        drop(places);
        self.announce([templates.clone()]);
        self.to_store.send_replace(());
        Learned { changed: true, smaller, has_all }
    }

    /// Adds the volumes and devices of a Node whose entry is known.
    pub(super) fn learn_offers(&self, key: &Key, offers: &Offers) {
        let places = self.places.lock();
        let place = places.iter().find(|place| place.is_of(&key.templates.namespace));
        let known = place.and_then(|place| place.all.get(key)).cloned();
        drop(places);
        if let Some(known) = known {
            self.learn(&key.templates, key, &known.offering(offers));
        }
    }

    /// Replaces the content of a ConfigMap by what was read of it.
    pub fn set_content<'a>(
        &self,
        config_map: &ObjectKey,
        version: &str,
        data: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) {
        // Read without the lock, for which evaluations wait.
        let namespace = {
            let places = self.places.lock();
            let Some(place) = places.iter().find(|place| place.config_map == *config_map) else { return };
            place.namespace.clone()
        };
        let content = Content::parse(data, namespace.as_deref(), Timestamp::now());
        let mut places = self.places.lock();
        let Some(place) = places.iter_mut().find(|place| place.config_map == *config_map) else { return };
        place.reading = Reading::Read;
        if content.set_aside != place.stored.content.set_aside {
            for why in SetAside::shown(&content.set_aside) {
                tracing::warn!(%config_map, "an entry of what is remembered isn't used: {why}");
            }
        }
        place.stored = Stored { content, version: version.into() };
        let changed = place.combine();
        let is_rest = !place.own.is_empty();
        drop(places);
        self.announce(changed);
        if is_rest {
            self.to_store.send_replace(());
        }
    }

    /// Records that a ConfigMap was deleted. What was read of it is stored again once it is back.
    pub fn set_deleted(&self, config_map: &ObjectKey, why: &str) {
        if let Some(place) = self.places.lock().iter_mut().find(|place| place.config_map == *config_map) {
            for (key, entry) in std::mem::take(&mut place.stored).content.entries {
                place.own.entry(key).or_insert(entry);
            }
        }
        self.set_unreadable(config_map, why);
    }

    /// Records that a ConfigMap can't be read, or isn't there. What was read of it is kept.
    pub fn set_unreadable(&self, config_map: &ObjectKey, why: &str) {
        let reading = Reading::Unreadable(why.into());
        let mut places = self.places.lock();
        let Some(place) = places.iter_mut().find(|place| place.config_map == *config_map) else { return };
        if place.reading != reading {
            tracing::warn!(%config_map, "what is remembered of Nodes isn't kept beyond a restart: {why}");
            place.reading = reading;
        }
    }

    /// Records why a ConfigMap can't be written; `None` if it can.
    pub fn set_unwritable(&self, config_map: &ObjectKey, why: Option<&str>) {
        let mut places = self.places.lock();
        let Some(place) = places.iter_mut().find(|place| place.config_map == *config_map) else { return };
        if place.unwritable.as_deref() != why {
            if let Some(why) = why {
                tracing::warn!(%config_map, "what is remembered of Nodes can't be stored: {why}");
            }
            place.unwritable = why.map(Into::into);
        }
    }

    /// Returns true if each ConfigMap has been read, or can't be.
    pub fn has_settled(&self) -> bool {
        self.places.lock().iter().all(|place| place.reading != Reading::Pending)
    }

    /// Returns the write that a ConfigMap needs; `None` if nothing has to be stored, or it can't be read. `used` are the
    /// templates of all groups.
    pub fn write(&self, config_map: &ObjectKey, used: &BTreeSet<Templates>) -> Option<MemoryWrite> {
        // Planned without the lock, for which evaluations wait.
        let (Stored { content, version }, own) = {
            let places = self.places.lock();
            let place = places.iter().find(|place| place.config_map == *config_map)?;
            if place.reading != Reading::Read || place.own.is_empty() {
                return None;
            }
            (place.stored.clone(), place.own.clone())
        };
        let data = remembered::plan(&content, &own, used);
        (!data.is_empty()).then(|| MemoryWrite { config_map: config_map.clone(), version, data })
    }

    /// Returns the ConfigMaps with their states.
    pub fn view(&self) -> Vec<PlaceView> {
        let places = self.places.lock();
        let view = |place: &Place| PlaceView {
            config_map: place.config_map.clone(),
            reading: place.reading.clone(),
            unwritable: place.unwritable.clone(),
            entries: place.all.len(),
            set_aside: place.stored.content.set_aside.clone(),
        };
        places.iter().map(view).collect()
    }

    /// Takes the templates whose entries have changed since the last call.
    pub fn take_changed(&self) -> BTreeSet<Templates> {
        std::mem::take(&mut *self.changed.lock())
    }

    /// Returns a receiver that is notified when [`Memory::take_changed`] has more.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.notify.subscribe()
    }

    /// Returns a receiver that is notified when [`Memory::write`] may have something.
    pub fn to_store(&self) -> watch::Receiver<()> {
        self.to_store.subscribe()
    }

    fn announce(&self, templates: impl IntoIterator<Item = Templates>) {
        let mut changed = self.changed.lock();
        let before = changed.len();
        changed.extend(templates);
        if changed.len() > before {
            self.notify.send_replace(());
        }
    }
}

impl Place {
    fn is_of(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|only| only == namespace)
    }

    /// Combines what is stored with what is own, and forgets what is stored already. Returns the templates whose entries
    /// have changed.
    fn combine(&mut self) -> Vec<Templates> {
        let stored = &self.stored.content.entries;
        let is_stored =
            |key: &Key, entry: &Entry| stored.get(key).is_some_and(|known| !known.merge(entry).is_news(known));
        self.own.retain(|key, entry| !is_stored(key, entry));
        let mut all = stored.clone();
        for (key, entry) in &self.own {
            let merged = all.get(key).map_or_else(|| Arc::clone(entry), |known| Arc::new(known.merge(entry)));
            all.insert(key.clone(), merged);
        }
        let before = std::mem::replace(&mut self.all, all);
        let is_other = |key: &&Key| before.get(*key) != self.all.get(*key);
        let keys: BTreeSet<_> = before.keys().chain(self.all.keys()).filter(is_other).collect();
        keys.into_iter().map(|key| key.templates.clone()).collect()
    }

    /// Forgets the oldest entries of more than a ConfigMap may have: none may be there to store them.
    fn keep_few(&mut self) {
        while self.all.len() > 2 * MOST_ENTRIES {
            let oldest = self.all.iter().min_by_key(|(_, entry)| entry.seen.at).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.all.remove(&oldest);
            self.own.remove(&oldest);
        }
    }
}
