//! Writes what is remembered of Nodes into its ConfigMaps: at most once a minute, and only on the version that was read.
//! Whoever loses to another replica reads its entries by the watch, and tries again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use index::{Memory, MemoryWrite};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Error,
    api::{Patch, PatchParams},
};
use rules::{capi::ObjectKey, named_enum, remembered::Templates};
use serde_json::{Value, json};
use shared_informer::Spawner;
use tokio::time::sleep;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::metrics::ScaleMetrics;

/// The name of the field manager.
const MANAGER: &str = "capi-autoscaler-provider";
/// The time in which further Nodes are waited for before a write.
const GATHER: Duration = Duration::from_secs(5);
/// The pause after a write.
const BETWEEN_WRITES: Duration = Duration::from_secs(60);
/// The pause after a write that was refused: a permission or the ConfigMap is missing.
const AFTER_REFUSAL: Duration = Duration::from_secs(600);

/// The task that keeps what is remembered. Dropping the last clone ends it.
#[derive(Clone)]
pub struct MemoryKeeper {
    ended: CancellationToken,
    tasks: TaskTracker,
    _ends: Arc<DropGuard>,
}

named_enum! {
    /// The result of a write, as a metric label.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub(super) enum Kept {
        /// It is stored.
        Stored = "ok",
        /// Another replica has written meanwhile.
        Conflict = "conflict",
        /// The API server refused it: a permission or the ConfigMap is missing.
        Refused = "refused",
        /// It had no answer, or another error.
        Failed = "failed",
    }
}

impl MemoryKeeper {
    /// Starts to write through `client`. `used` returns the templates of all groups.
    pub fn start(
        memory: &Arc<Memory>,
        client: &Client,
        used: impl Fn() -> BTreeSet<Templates> + Send + Sync + 'static,
        metrics: &ScaleMetrics,
        tasks: &Spawner,
    ) -> Self {
        let (ended, tracker) = (CancellationToken::new(), TaskTracker::new());
        let used = Arc::new(used);
        for config_map in memory.config_maps() {
            let (memory, client, metrics) = (Arc::clone(memory), client.clone(), metrics.clone());
            let (used, ended) = (Arc::clone(&used), ended.clone());
            tasks.spawn_tracked(&tracker, async move {
                ended.run_until_cancelled(keep(&memory, &config_map, &client, &*used, &metrics)).await;
            });
        }
        let ends = Arc::new(ended.clone().drop_guard());
        Self { ended, tasks: tracker, _ends: ends }
    }

    /// Ends the task, and waits for it.
    pub async fn end(&self) {
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Keeps a ConfigMap. Never returns; drop the future to stop.
async fn keep(
    memory: &Memory,
    config_map: &ObjectKey,
    client: &Client,
    used: &(impl Fn() -> BTreeSet<Templates> + ?Sized),
    metrics: &ScaleMetrics,
) {
    let mut changes = memory.to_store();
    loop {
        changes.borrow_and_update();
        let is_due = memory.write(config_map, &BTreeSet::new()).is_some();
        if is_due {
            sleep(GATHER).await;
            if let Some(write) = memory.write(config_map, &used()) {
                let kept = write_once(memory, &write, client).await;
                metrics.count_kept(kept);
                let pause = match kept {
                    Kept::Refused => AFTER_REFUSAL,
                    Kept::Stored | Kept::Conflict | Kept::Failed => BETWEEN_WRITES,
                };
                sleep(pause).await;
                continue;
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn write_once(memory: &Memory, write: &MemoryWrite, client: &Client) -> Kept {
    let MemoryWrite { config_map, version, data } = write;
    let patch = json!({ "metadata": { "resourceVersion": version.as_str() }, "data": data });
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &config_map.namespace);
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(&config_map.name, &params, &Patch::<Value>::Merge(patch)).await {
        Ok(now) => {
            let version = now.metadata.resource_version.unwrap_or_default();
            let data = now.data.unwrap_or_default();
            tracing::debug!(%config_map, entries = data.len(), "what is remembered of Nodes is stored");
            memory.set_content(config_map, &version, data.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            memory.set_unwritable(config_map, None);
            Kept::Stored
        }
        Err(Error::Api(status)) if status.code == 409 => Kept::Conflict,
        Err(error) => {
            memory.set_unwritable(config_map, Some(&connect::cause(&error)));
            match error {
                Error::Api(status) if [403, 404, 422].contains(&status.code) => Kept::Refused,
                _ => Kept::Failed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use http::{Request, Response};
    use index::{
        Change, Index,
        objects::{deployment, joined, kind, node, rules, set_of_with, using_template},
    };
    use kube::client::Body;
    use parking_lot::Mutex;
    use rules::capi::{InfrastructureTemplate, Meta};
    use tokio::{runtime::Handle, time::Instant};

    use super::*;

    /// A ConfigMap behind an API server that answers with these codes, then as it should.
    #[derive(Default)]
    struct Server {
        data: BTreeMap<String, String>,
        version: u32,
        codes: VecDeque<u16>,
        writes: Vec<(Instant, u16)>,
    }

    fn config_map() -> ObjectKey {
        ObjectKey::new("capi", "remembered-nodes")
    }

    impl Server {
        fn answer(&mut self, path: &str, body: &Value) -> (u16, Value) {
            assert_eq!(path, "/api/v1/namespaces/capi/configmaps/remembered-nodes");
            let is_same = body["metadata"]["resourceVersion"] == json!(self.version.to_string());
            let code = self.codes.pop_front().unwrap_or(if is_same { 200 } else { 409 });
            self.writes.push((Instant::now(), code));
            if code != 200 {
                let status =
                    json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "no", "code": code});
                return (code, status);
            }
            for (name, value) in body["data"].as_object().unwrap() {
                match value.as_str() {
                    Some(value) => drop(self.data.insert(name.clone(), value.to_owned())),
                    None => drop(self.data.remove(name)),
                }
            }
            self.version += 1;
            (200, json!({"metadata": {"resourceVersion": self.version.to_string()}, "data": self.data}))
        }

        fn show(&self, memory: &Memory) {
            let data = self.data.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            memory.set_content(&config_map(), &self.version.to_string(), data);
        }
    }

    fn client(server: &Arc<Mutex<Server>>) -> Client {
        let server = Arc::clone(server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move {
                let (head, body) = request.into_parts();
                let patch = serde_json::from_slice(&body.collect_bytes().await?)?;
                let (code, answer) = server.lock().answer(head.uri.path(), &patch);
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
                    Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))?,
                )
            }
        });
        Client::new(service, "default")
    }

    /// Has an index with a Node of this name and memory.
    fn learn(memory: &Arc<Memory>, name: &str, amount: &str) {
        let index = Index::new(rules()).remembering(Some(Arc::clone(memory)));
        let meta = Meta { key: ObjectKey::new("team-a", "old"), uid: "uid".into(), resource_version: "1".into() };
        let template = InfrastructureTemplate::decode(meta, &json!({"spec": {"size": "large"}})).unwrap();
        let node = node(
            name,
            &json!({"status": {
                "capacity": {"cpu": "8", "memory": amount},
                "allocatable": {"cpu": "8", "memory": amount},
                "conditions": [{"type": "Ready", "status": "True"}],
            }}),
        );
        let using = using_template("old");
        for change in [
            deployment("workers", 1, ("0", "9"), &using),
            set_of_with("workers", "workers-1", &using),
            Change::Template(kind(), Arc::new(template)),
            joined("MachineSet/workers-1", name),
            node,
        ] {
            index.apply_and_take_notices(change);
        }
    }

    fn keeper(memory: &Arc<Memory>, server: &Arc<Mutex<Server>>) -> MemoryKeeper {
        let tasks = Spawner::from(Handle::current());
        MemoryKeeper::start(memory, &client(server), BTreeSet::new, &ScaleMetrics::default(), &tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_new_is_written_at_most_once_a_minute() {
        let (memory, server) = (Arc::new(Memory::new(&[config_map()])), Arc::default());
        let keeper = keeper(&memory, &server);
        learn(&memory, "a", "30Gi");
        sleep(Duration::from_secs(60)).await;
        assert!(server.lock().writes.is_empty(), "it isn't read yet");
        server.lock().show(&memory);
        let begun = Instant::now();
        for (name, amount) in [("b", "29Gi"), ("c", "28Gi"), ("d", "28Gi")] {
            sleep(Duration::from_secs(10)).await;
            learn(&memory, name, amount);
        }
        sleep(Duration::from_secs(600)).await;
        let writes: Vec<_> = server.lock().writes.iter().map(|(at, code)| ((*at - begun).as_secs(), *code)).collect();
        assert_eq!(writes, [(5, 200), (70, 200)]);
        assert!(server.lock().data.values().next().unwrap().contains("28Gi"));
        keeper.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_was_too_late_reads_and_tries_again() {
        let server = Arc::<Mutex<Server>>::default();
        let memories = [(); 2].map(|()| Arc::new(Memory::new(&[config_map()])));
        let mut keepers = Vec::new();
        for (memory, (name, amount)) in memories.iter().zip([("a", "30Gi"), ("b", "20Gi")]) {
            server.lock().show(memory);
            learn(memory, name, amount);
            keepers.push(keeper(memory, &server));
        }
        sleep(Duration::from_secs(10)).await;
        let codes = |server: &Mutex<Server>| server.lock().writes.iter().map(|(_, code)| *code).collect::<Vec<_>>();
        assert_eq!(codes(&server), [200, 409]);
        for memory in &memories {
            server.lock().show(memory);
        }
        sleep(Duration::from_secs(120)).await;
        assert_eq!(codes(&server), [200, 409, 200]);
        assert!(server.lock().data.values().next().unwrap().contains("20Gi"));
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_it_is_noted_and_seldom_tried() {
        let server = Arc::new(Mutex::new(Server { codes: [403, 403].into(), ..Server::default() }));
        let memory = Arc::new(Memory::new(&[config_map()]));
        server.lock().show(&memory);
        learn(&memory, "a", "30Gi");
        let _keeper = keeper(&memory, &server);
        sleep(Duration::from_secs(700)).await;
        assert!(memory.view()[0].unwritable.is_some());
        assert_eq!(server.lock().writes.len(), 2);
        sleep(Duration::from_secs(700)).await;
        assert_eq!((memory.view()[0].unwritable.clone(), server.lock().data.len()), (None, 1));
    }
}
