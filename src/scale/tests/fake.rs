//! A MachineDeployment `team-a/workers` and its Machines behind HTTP: `/scale` with JSON patches and their tests,
//! Machines with merge patches, and faults on demand.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwapOption;
use http::{Method, Request, Response, StatusCode};
use kube::{Client, client::Body, core::ApiResource};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{runtime::Handle, sync::Notify};

use crate::{
    capi::{Context, CoreResources, Keys, Machine, Meta, ObjectKey, ScalableKind, ScalableResource},
    index::{Change, Index},
    nodegroup::{Architecture, GroupId, Rules, Scope, TemplateRules},
    scale::{Api, NodeName, Scale, ScaleMetrics, ScaleOptions},
};

/// What goes wrong with one request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// This answer instead of doing it.
    Answer(u16, Value),
    /// The connection is cut before it is done.
    CutBefore,
    /// It is done, and then the connection is cut.
    CutAfter,
    /// It is done, and then this answer is sent.
    DoneBut(u16),
    /// The size is this by the time it arrives.
    SizeIs(i32),
    /// It waits for [`FakeApi::release`].
    Hold,
}

#[derive(Debug, Default)]
struct State {
    replicas: i32,
    version: u64,
    /// The delete-machine annotation of each Machine.
    marks: BTreeMap<String, String>,
    calls: Vec<String>,
    /// Faults of the calls that contain a text, in order.
    faults: VecDeque<(&'static str, Fault)>,
}

/// The API server.
#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    held: Arc<Notify>,
    released: Arc<Notify>,
}

impl FakeApi {
    pub(crate) fn fault(&self, call: &'static str, fault: Fault) {
        self.state.lock().faults.push_back((call, fault));
    }

    pub(crate) fn replicas(&self) -> i32 {
        self.state.lock().replicas
    }

    /// The Machines that are marked.
    pub(crate) fn marked(&self) -> Vec<String> {
        self.state.lock().marks.keys().cloned().collect()
    }

    pub(crate) fn mark_of(&self, machine: &str) -> Option<String> {
        self.state.lock().marks.get(machine).cloned()
    }

    /// Every call so far, as `PATCH scale`, `GET scale`, `PATCH machine a`.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    /// Waits until a call is held.
    pub(crate) async fn held(&self) {
        self.held.notified().await;
    }

    /// Lets the held call go on.
    pub(crate) fn release(&self) {
        self.released.notify_one();
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let path = parts.uri.path();
        let name = path.rsplit('/').next().unwrap_or_default();
        let call = if name == "scale" {
            format!("{} scale", parts.method)
        } else {
            format!("{} machine {name}", parts.method)
        };
        let fault = {
            let mut state = self.state.lock();
            state.calls.push(call.clone());
            let position = state.faults.iter().position(|(text, _)| call.contains(text));
            position.and_then(|position| state.faults.remove(position)).map(|(_, fault)| fault)
        };
        match fault {
            Some(Fault::Answer(code, status)) => return Ok(answer(code, &status)),
            Some(Fault::CutBefore) => return Err("connection reset".into()),
            Some(Fault::CutAfter) => {
                self.handle(&parts.method, name, &body);
                return Err("connection reset".into());
            }
            Some(Fault::DoneBut(code)) => {
                self.handle(&parts.method, name, &body);
                return Ok(answer(code, &status(code, "internal error")));
            }
            Some(Fault::SizeIs(replicas)) => {
                let mut state = self.state.lock();
                state.replicas = replicas;
                state.version += 1;
            }
            Some(Fault::Hold) => {
                self.held.notify_one();
                self.released.notified().await;
            }
            None => {}
        }
        Ok(self.handle(&parts.method, name, &body))
    }

    fn handle(&self, method: &Method, name: &str, body: &[u8]) -> Response<Body> {
        let mut state = self.state.lock();
        let patch: Value = serde_json::from_slice(body).unwrap_or_default();
        if name != "scale" {
            match &patch["metadata"]["annotations"]["cluster.x-k8s.io/delete-machine"] {
                Value::String(mark) => state.marks.insert(name.to_owned(), mark.clone()),
                _ => state.marks.remove(name),
            };
            return answer(
                200,
                &json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name}}),
            );
        }
        let spec = if state.replicas == 0 { json!({}) } else { json!({"replicas": state.replicas}) };
        let mut scale = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "workers", "resourceVersion": state.version.to_string()},
            "spec": spec,
        });
        if *method == Method::PATCH {
            let patch: json_patch::Patch = serde_json::from_value(patch).expect("a JSON patch");
            if json_patch::patch(&mut scale, &patch).is_err() {
                return answer(422, &status(422, "the server rejected our request due to an error in our request"));
            }
            state.replicas = i32::try_from(scale["spec"]["replicas"].as_i64().unwrap_or_default()).expect("an i32");
            state.version += 1;
            scale["metadata"]["resourceVersion"] = json!(state.version.to_string());
        }
        answer(200, &scale)
    }
}

pub(crate) fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "Test", "code": code})
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = StatusCode::from_u16(code).expect("a status code");
    response
}

/// The scale room over a fake API, with an index that knows the same.
pub(crate) struct World {
    pub(crate) api: FakeApi,
    pub(crate) index: Arc<Index>,
    pub(crate) scale: Scale,
}

impl World {
    /// A MachineDeployment of this size, bounds 1 and 10, with these running Machines.
    pub(crate) fn new(replicas: i32, machines: &[&str]) -> Self {
        let index = Arc::new(Index::new(Rules {
            keys: Keys::default(),
            scope: Scope::All,
            template: TemplateRules { default_arch: Architecture::Amd64, additional_sync_labels: Vec::new() },
        }));
        let api = FakeApi::default();
        {
            let mut state = api.state.lock();
            state.replicas = replicas;
            state.version = 100;
        }
        let calls = api.clone();
        let client = Client::new(tower::service_fn(move |request| calls.clone().serve(request)), "default");
        let resources = Arc::new(ArcSwapOption::from_pointee(resources()));
        let scale = Scale::new(
            Arc::clone(&index),
            Api::new(client, resources, Keys::default()),
            ScaleOptions::default(),
            ScaleMetrics::default(),
            Handle::current(),
        );
        let world = Self { api, index, scale };
        world.resize(replicas, 100);
        world.scalable(
            ScalableKind::MachineSet,
            "workers-1",
            &json!({"metadata": {"ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "workers", "controller": true},
            ]}}),
        );
        for machine in machines {
            world.machine(machine, &json!({"nodeRef": {"name": machine}}), &json!({}));
        }
        world
    }

    /// The watch shows a size.
    pub(crate) fn resize(&self, replicas: i32, version: u64) {
        let annotations = json!({
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10",
        });
        let value = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}});
        let meta = Meta { resource_version: version.to_string().into(), ..meta("workers") };
        let object = ScalableResource::decode(ScalableKind::MachineDeployment, meta, &value, &context());
        self.index.apply_quietly(Change::Scalable(Arc::new(object.expect("decodes"))));
    }

    fn scalable(&self, kind: ScalableKind, name: &str, value: &Value) {
        let object = ScalableResource::decode(kind, meta(name), value, &context()).expect("decodes");
        self.index.apply_quietly(Change::Scalable(Arc::new(object)));
    }

    /// A MachinePool `team-a/pool` of this size that lists these instances; none of them is a Machine.
    pub(crate) fn pool(&self, replicas: i32, provider_ids: &[&str]) -> GroupId {
        self.api.state.lock().replicas = replicas;
        let annotations = json!({"cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10"});
        let spec = json!({"replicas": replicas, "providerIDList": provider_ids});
        self.scalable(
            ScalableKind::MachinePool,
            "pool",
            &json!({"metadata": {"annotations": annotations}, "spec": spec}),
        );
        GroupId::parse("MachinePool/team-a/pool").expect("an id")
    }

    pub(crate) fn machine(&self, name: &str, status: &Value, metadata: &Value) {
        let mut value = json!({
            "metadata": {"ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "workers-1", "controller": true},
            ]},
            "spec": {"providerID": format!("cloud:///{name}")},
            "status": status,
        });
        if let (Value::Object(into), Value::Object(from)) = (&mut value["metadata"], metadata.clone()) {
            into.extend(from);
        }
        let machine = Machine::decode(meta(name), &value, &context()).expect("decodes");
        self.index.apply_quietly(Change::Machine(Arc::new(machine)));
    }

    pub(crate) fn target_size(&self) -> i32 {
        self.index.target_size(&group()).expect("a group")
    }
}

pub(crate) fn group() -> GroupId {
    GroupId::parse("MachineDeployment/team-a/workers").expect("an id")
}

/// Nodes by the names of their Machines.
pub(crate) fn nodes(names: &[&str]) -> Vec<NodeName> {
    let node = |name: &&str| NodeName {
        name: (*name).to_owned(),
        provider_id: format!("cloud:///{name}"),
        ..NodeName::default()
    };
    names.iter().map(node).collect()
}

/// An instance that has no Node, as Cluster Autoscaler names it.
pub(crate) fn instance(id: &str) -> Vec<NodeName> {
    vec![NodeName { name: id.to_owned(), provider_id: id.to_owned(), ..NodeName::default() }]
}

/// Longer than any command of these tests takes on a slow machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

fn context() -> Arc<Context> {
    Context::new("cluster.x-k8s.io")
}

fn meta(name: &str) -> Meta {
    Meta { key: ObjectKey::new("team-a", name), uid: format!("uid-{name}").into(), resource_version: "100".into() }
}

pub(crate) fn resources() -> CoreResources {
    let resource = |kind: &str, plural: &str| ApiResource {
        group: "cluster.x-k8s.io".to_owned(),
        version: "v1beta2".to_owned(),
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    CoreResources {
        cluster: resource("Cluster", "clusters"),
        machine_deployment: resource("MachineDeployment", "machinedeployments"),
        machine_set: resource("MachineSet", "machinesets"),
        machine: resource("Machine", "machines"),
        machine_pool: Some(resource("MachinePool", "machinepools")),
    }
}
