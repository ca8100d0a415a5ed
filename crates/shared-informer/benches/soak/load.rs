//! The API's side of a soak: many changes of some thousands of objects, and all faults between an API server and its
//! clients. It must never know its followers.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use sandbox::{
    api::{Api, DeleteOptions, Resource, Selection},
    faults::{Fault, WatchFault},
    http::ApiServer,
};
use serde_json::{Value, json};

const NAMESPACE: &str = "default";
/// The pause between two bursts of changes.
const TICK: Duration = Duration::from_millis(5);

/// All objects with their versions, as two numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) objects: u64,
    pub(crate) digest: u64,
}

impl Fingerprint {
    /// Adds an object, in any order.
    pub(crate) fn add(&mut self, namespace: &str, name: &str, version: &str) {
        let mut hasher = DefaultHasher::new();
        (namespace, name, version).hash(&mut hasher);
        self.objects += 1;
        self.digest = self.digest.wrapping_add(hasher.finish());
    }
}

/// Returns the fingerprint of the objects that the load changes, as an API holds them.
pub(crate) fn fingerprint(api: &Api) -> Fingerprint {
    let mut all = Fingerprint::default();
    for object in api.list(&resource(), &Selection::default()).expect("ConfigMaps are served") {
        let text = |field: &str| object["metadata"][field].as_str().expect("an object has this").to_owned();
        all.add(&text("namespace"), &text("name"), &text("resourceVersion"));
    }
    all
}

fn resource() -> Resource {
    Resource::core("configmaps")
}

/// Random changes of objects: one in ten changes of an existing one deletes it.
pub(crate) struct Load {
    api: Api,
    random: fastrand::Rng,
    there: Vec<bool>,
    pub(crate) changes: u64,
}

impl Load {
    /// Creates a load on this number of objects, which are created at once.
    pub(crate) fn new(api: Api, objects: usize, seed: u64) -> Self {
        let mut load = Self { api, random: fastrand::Rng::with_seed(seed), there: vec![false; objects], changes: 0 };
        for number in 0..objects {
            load.create(number);
        }
        load
    }

    /// Makes changes at a rate per second for a duration.
    pub(crate) fn run(&mut self, rate: u32, duration: Duration) {
        let began = Instant::now();
        let before = self.changes;
        while began.elapsed() < duration {
            let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as u64;
            while self.changes - before < due && began.elapsed() < duration {
                self.change();
            }
            sleep(TICK);
        }
    }

    fn change(&mut self) {
        let number = self.random.usize(..self.there.len());
        match self.there[number] {
            false => self.create(number),
            true if self.random.u8(..10) == 0 => self.delete(number),
            true => {
                let object = self.object(number);
                self.api.update(&resource(), object).expect("an update is taken");
            }
        }
        self.changes += 1;
    }

    fn create(&mut self, number: usize) {
        let object = self.object(number);
        self.api.create(&resource(), object).expect("an object is taken");
        self.there[number] = true;
    }

    fn delete(&mut self, number: usize) {
        let options = DeleteOptions::default();
        self.api.delete(&resource(), NAMESPACE, &name(number), &options).expect("a delete is taken");
        self.there[number] = false;
    }

    fn object(&mut self, number: usize) -> Value {
        let (change, random) = (self.changes.to_string(), self.random.u64(..).to_string());
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": NAMESPACE, "name": name(number), "labels": { "app": "soak" } },
            "data": { "change": change, "random": random },
        })
    }
}

fn name(number: usize) -> String {
    format!("object-{number:05}")
}

/// Causes one fault after another, until it is dropped.
pub(crate) async fn go_wrong(server: Arc<ApiServer>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let events = random.usize(..500);
        let faults = match random.u8(..7) {
            0 => vec![Fault::watch(WatchFault::CutAfter(events))],
            1 => vec![Fault::watch(WatchFault::EndAfter(events))],
            2 => vec![Fault::watch(WatchFault::Garbage)],
            3 => vec![Fault::watch(WatchFault::Expire)],
            4 => vec![Fault::watch(WatchFault::Duplicate)],
            5 => vec![
                Fault::refuse(503, "ServiceUnavailable", "the server is shutting down"),
                Fault::watch(WatchFault::CutAfter(events)),
            ],
            _ => {
                server.api().forget_history();
                vec![Fault::watch(WatchFault::CutAfter(0))]
            }
        };
        let handles: Vec<_> = faults.into_iter().map(|fault| server.faults().add(fault.times(1))).collect();
        tokio::time::sleep(Duration::from_millis(random.u64(200..1500))).await;
        for handle in handles {
            handle.remove();
        }
    }
}
