//! The informer's side of a soak: handlers that check each event against their earlier events, one of which is slow at
//! times. It must read the API only through the informer.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Config, core::ApiResource};
use parking_lot::Mutex;
use shared_informer::{
    Event, Factory, HandlerOptions, Informer, ObjectKey, Projection, Query, Registration, ResourceVersion, Settings,
    Status,
};

use super::{latency::Latencies, load::Fingerprint};

/// The number of handlers that are never slow.
const FAST: usize = 3;
/// The time that the slow handler takes per event while it is slow.
const DELAY: Duration = Duration::from_millis(2);
/// The max number of recorded mistakes of a handler.
const MISTAKES: usize = 10;

/// The decoded form of an object: only the time of its decoding.
struct Seen {
    decoded: Instant,
}

/// The events that one handler received.
#[derive(Default)]
pub(crate) struct Received {
    versions: HashMap<ObjectKey, ResourceVersion>,
    events: u64,
    mistakes: Vec<String>,
    /// The latency from decoding to the handler, while no handler is slow.
    calm: Latencies,
    /// The same while one is slow.
    burdened: Latencies,
}

impl Received {
    fn hear(&mut self, event: &Event<Seen>, burdened: bool) {
        self.events += 1;
        // An object that is missing from a list was decoded long ago.
        let old = matches!(event, Event::Deleted { found_by_relist: true, .. });
        if let Some(seen) = event.object().decoded().filter(|_| !old) {
            let latencies = if burdened { &mut self.burdened } else { &mut self.calm };
            latencies.add(seen.decoded.elapsed());
        }
        let version = event.object().metadata.resource_version.clone();
        let key = event.key();
        let known = self.versions.get(&key).cloned();
        let mistake = match event {
            Event::Added { .. } => known.map(|known| format!("{key} added at {version}, known at {known}")),
            Event::Updated { old, .. } => {
                let old = &old.metadata.resource_version;
                let wrong = known.as_ref() != Some(old) || version.number() < old.number();
                wrong.then(|| format!("{key} updated from {old} to {version}, known at {known:?}"))
            }
            Event::Deleted { .. } => known.is_none().then(|| format!("{key} deleted at {version}, not known")),
        };
        self.mistakes.extend(mistake.filter(|_| self.mistakes.len() < MISTAKES));
        match event {
            Event::Added { .. } | Event::Updated { .. } => self.versions.insert(key, version),
            Event::Deleted { .. } => self.versions.remove(&key),
        };
    }

    fn fingerprint(&self) -> Fingerprint {
        let mut all = Fingerprint::default();
        for (key, version) in &self.versions {
            all.add(&key.namespace, &key.name, &version.to_string());
        }
        all
    }
}

/// An informer of the load's objects, with its handlers.
pub(crate) struct Follower {
    factory: Factory,
    informer: Informer<Seen>,
    handlers: Vec<(Registration<Seen>, Arc<Mutex<Received>>)>,
    /// True while the slow handler is slow.
    burden: Arc<AtomicBool>,
}

/// The result of a run.
pub(crate) struct Report {
    /// All mistakes; empty if there were none.
    pub(crate) mistakes: Vec<String>,
    /// The number of events of each handler, the slow one last.
    pub(crate) events: Vec<u64>,
    /// Latencies of the fast handlers while none was slow.
    pub(crate) calm: Latencies,
    /// The same while one was slow.
    pub(crate) burdened: Latencies,
    pub(crate) status: Status,
}

impl Follower {
    /// Follows the API at this URL on the runtime of the caller.
    pub(crate) fn start(url: &str) -> Self {
        let mut config = Config::new(url.parse().expect("a URL"));
        config.default_retry = false;
        let settings = Settings {
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_millis(500),
            ..Settings::default()
        };
        let client = Client::try_from(config).expect("a client");
        let factory = Factory::new(client, tokio::runtime::Handle::current(), settings);
        let projection = Projection::new("seen", |_, _| Ok(Seen { decoded: Instant::now() }));
        let informer = factory.informer(Query::all(ApiResource::erase::<ConfigMap>(&())), projection);
        let burden = Arc::new(AtomicBool::new(false));
        let handlers = (0..=FAST).map(|number| handler(&informer, number == FAST, &burden)).collect();
        Self { factory, informer, handlers, burden }
    }

    pub(crate) async fn synced(&self) {
        self.informer.wait_for_sync(Duration::from_secs(60)).await.expect("the informer syncs");
    }

    /// Makes the slow handler slow in every other period, until it is dropped.
    pub(crate) async fn burden_by_turns(&self, period: Duration) {
        let mut turns = tokio::time::interval(period);
        loop {
            turns.tick().await;
            self.burden.fetch_xor(true, Ordering::Relaxed);
        }
    }

    /// Returns the number of objects that wait for the slow handler.
    pub(crate) fn queued(&self) -> usize {
        self.handlers.last().map_or(0, |(registration, _)| registration.queued())
    }

    /// Waits until the store and all delivered events match the API, or until the deadline. Returns the report.
    pub(crate) async fn finish(self, expected: Fingerprint, deadline: Duration) -> Report {
        self.burden.store(false, Ordering::Relaxed);
        let began = Instant::now();
        while !self.differences(expected).is_empty() && began.elapsed() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut report = Report {
            mistakes: self.differences(expected),
            events: Vec::new(),
            calm: Latencies::default(),
            burdened: Latencies::default(),
            status: self.informer.status(),
        };
        for (number, (_, received)) in self.handlers.iter().enumerate() {
            let received = received.lock();
            report.mistakes.extend(received.mistakes.iter().map(|mistake| format!("handler {number}: {mistake}")));
            report.events.push(received.events);
            if number < FAST {
                report.calm.merge(&received.calm);
                report.burdened.merge(&received.burdened);
            }
        }
        self.factory.shutdown().await;
        report
    }

    fn differences(&self, expected: Fingerprint) -> Vec<String> {
        let mut store = Fingerprint::default();
        for object in self.informer.store().list() {
            let metadata = &object.metadata;
            store.add(&metadata.key.namespace, &metadata.key.name, &metadata.resource_version.to_string());
        }
        let received = self.handlers.iter().map(|(_, received)| received.lock().fingerprint());
        std::iter::once(store)
            .chain(received)
            .enumerate()
            .filter(|(_, found)| *found != expected)
            .map(|(place, found)| {
                let who = if place == 0 { "the store".to_owned() } else { format!("handler {}", place - 1) };
                format!("{who} has {found:?}, the API {expected:?}")
            })
            .collect()
    }
}

fn handler(
    informer: &Informer<Seen>,
    is_slow: bool,
    burden: &Arc<AtomicBool>,
) -> (Registration<Seen>, Arc<Mutex<Received>>) {
    let received = Arc::new(Mutex::new(Received::default()));
    let (heard, burden) = (Arc::clone(&received), Arc::clone(burden));
    let options = HandlerOptions::named(if is_slow { "slow" } else { "fast" });
    let registration = informer.add_handler_with(options, move |event: Event<Seen>| {
        let burdened = burden.load(Ordering::Relaxed);
        heard.lock().hear(&event, burdened);
        if is_slow && burdened {
            sleep(DELAY);
        }
    });
    (registration, received)
}
