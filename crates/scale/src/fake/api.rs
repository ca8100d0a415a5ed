//! A fake API server: the sandbox's API without controllers, with faults on demand and with the writes of controllers
//! and others.

use std::{collections::VecDeque, sync::Arc};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use sandbox::{
    Contract,
    api::{DeleteOptions, Deleted, PatchKind, Refusal, Resource, Selection, Subresource},
    clock::Clock,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{API_VERSION, DELETE_MACHINE, NAMESPACE, owned_by, workers};

/// A fault of one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Sends this answer instead of carrying out the request.
    Answer(u16, Value),
    /// Sends an answer with this code and the Retry-After header instead of carrying out the request.
    AnswerAfter(u16, u64),
    /// Cuts the connection before the request is carried out.
    CutBefore,
    /// Carries out the request, and then cuts the connection.
    CutAfter,
    /// Carries out the request, and then sends an answer with this code.
    DoneBut(u16),
    /// Sets this size before the request is carried out.
    SizeIs(i32),
    /// Holds the request until [`FakeApi::release`].
    Hold,
    /// Holds the request until [`FakeApi::release`], and then answers with this code instead of carrying it out.
    HoldBut(u16),
    /// Carries out the request, and holds its answer until [`FakeApi::release`].
    HoldAnswer,
}

#[derive(Default)]
struct State {
    calls: Vec<String>,
    /// The faults in order, each for a call that contains the text.
    faults: VecDeque<(&'static str, Fault)>,
}

/// A fake API server.
#[derive(Clone)]
pub struct FakeApi {
    pub objects: sandbox::api::Api,
    state: Arc<Mutex<State>>,
    held: Arc<Notify>,
    released: Arc<Notify>,
}

fn resource(plural: &str) -> Resource {
    Resource::new("cluster.x-k8s.io", "v1beta2", plural.to_owned())
}

impl FakeApi {
    pub(super) fn new() -> Self {
        let objects = sandbox::api::Api::new(Clock::real());
        sandbox::define_cluster_api(&objects, Contract::V1Beta2).expect("definitions");
        Self { objects, state: Arc::default(), held: Arc::default(), released: Arc::default() }
    }

    pub fn fault(&self, call: &'static str, fault: Fault) {
        self.state.lock().faults.push_back((call, fault));
    }

    pub fn object(&self, plural: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.get(&resource(plural), NAMESPACE, name).ok()
    }

    pub(super) fn all(&self, plural: &str) -> Vec<Arc<Value>> {
        self.objects.list(&resource(plural), &Selection::default()).expect("a list")
    }

    pub fn replicas(&self) -> i32 {
        let object = self.object("machinedeployments", "workers").expect("the group");
        i32::try_from(object["spec"]["replicas"].as_i64().unwrap_or_default()).expect("an i32")
    }

    /// Returns the names of the marked Machines.
    pub fn marked(&self) -> Vec<String> {
        let machines = self.all("machines");
        machines
            .iter()
            .filter(|machine| mark_of(machine).is_some())
            .map(|machine| name_of(machine).to_owned())
            .collect()
    }

    pub fn mark_of(&self, machine: &str) -> Option<String> {
        mark_of(&*self.object("machines", machine)?)
    }

    /// Returns the names of the Machines that are being deleted.
    pub fn deleting(&self) -> Vec<String> {
        let machines = self.all("machines");
        let deleting = machines.iter().filter(|machine| machine["metadata"]["deletionTimestamp"].is_string());
        deleting.map(|machine| name_of(machine).to_owned()).collect()
    }

    /// Returns every call so far, such as `PATCH scale`, `GET group`, `PATCH machine a` or `LIST machines`.
    pub fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    /// Waits until a call is held.
    pub async fn held(&self) {
        self.held.notified().await;
    }

    /// Lets the held call proceed.
    pub fn release(&self) {
        self.released.notify_one();
    }

    /// Changes an object in the name of somebody else.
    pub fn change(&self, plural: &str, name: &str, patch: Value) {
        let patched =
            self.objects.patch(&resource(plural), NAMESPACE, name, PatchKind::Merge, Subresource::Main, patch);
        patched.expect("patched");
    }

    /// Merges this into the status of an object.
    pub fn status(&self, plural: &str, name: &str, status: &Value) {
        let (resource, patch) = (resource(plural), json!({"status": status}));
        let patched = self.objects.patch(&resource, NAMESPACE, name, PatchKind::Merge, Subresource::Status, patch);
        patched.expect("patched");
    }

    /// Begins a rollout: a newer MachineSet of the group has its first Machine.
    pub fn roll_out(&self) {
        let revision = |number: &str| json!({"machinedeployment.clusters.x-k8s.io/revision": number});
        self.change("machinesets", "workers-1", json!({"metadata": {"annotations": revision("1")}}));
        let newer = json!({
            "apiVersion": API_VERSION, "kind": "MachineSet",
            "metadata": {
                "name": "workers-2", "namespace": NAMESPACE, "annotations": revision("2"),
                "ownerReferences": owned_by("MachineDeployment", "workers"),
            },
            "spec": {"clusterName": "prod", "replicas": 1}, "status": {"observedGeneration": 1},
        });
        self.objects.load_values(vec![newer]).expect("loaded");
    }

    pub fn is_deleting(&self, machine: &str) -> bool {
        let machine = self.object("machines", machine).expect("the Machine");
        machine["metadata"]["deletionTimestamp"].is_string()
    }

    /// Deletes the group in the name of somebody else, and creates it anew with this size.
    pub fn make_group_anew(&self, replicas: i32) {
        let deployments = resource("machinedeployments");
        self.objects.delete(&deployments, NAMESPACE, "workers", &DeleteOptions::default()).expect("deleted");
        self.objects.load_values(vec![workers(replicas)]).expect("loaded");
    }

    /// Deletes a Machine in the name of somebody else; it is gone at once.
    pub fn remove(&self, machine: &str) {
        self.change("machines", machine, json!({"metadata": {"finalizers": null}}));
        // A Machine that was being deleted is gone already.
        let _ = self.objects.delete(&resource("machines"), NAMESPACE, machine, &DeleteOptions::default());
        assert!(self.object("machines", machine).is_none(), "{machine} is still there");
    }

    /// Lets a Machine be one that hangs in deletion for long.
    pub fn hang(&self, machine: &str) {
        let mut object = Value::clone(&*self.object("machines", machine).expect("the Machine"));
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.objects.load_values(vec![object]).expect("loaded");
    }

    /// Begins to delete a Machine in the name of somebody else.
    pub fn begin_to_delete(&self, machine: &str) {
        self.objects.delete(&resource("machines"), NAMESPACE, machine, &DeleteOptions::default()).expect("deleted");
    }

    pub(super) async fn serve(self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let mut path = Path::parse(&parts.uri);
        if parts.method == Method::DELETE && String::from_utf8_lossy(&body).contains("\"dryRun\":[\"All\"]") {
            path.is_dry_run = true;
        }
        let call = path.call(&parts.method);
        let fault = {
            let mut state = self.state.lock();
            state.calls.push(call.clone());
            let position = state.faults.iter().position(|(text, _)| call.contains(text));
            position.and_then(|position| state.faults.remove(position)).map(|(_, fault)| fault)
        };
        let handle = || self.handle(&parts.method, &path, &body);
        match fault {
            None => Ok(handle()),
            Some(Fault::Answer(code, status)) => Ok(answer(code, &status)),
            Some(Fault::AnswerAfter(code, seconds)) => {
                let mut response = answer(code, &json!("too many requests"));
                response.headers_mut().insert("retry-after", seconds.into());
                Ok(response)
            }
            Some(Fault::CutBefore) => Err("connection reset".into()),
            Some(Fault::CutAfter) => {
                handle();
                Err("connection reset".into())
            }
            Some(Fault::DoneBut(code)) => {
                handle();
                Ok(answer(code, &status(code, "internal error")))
            }
            Some(Fault::SizeIs(replicas)) => {
                self.change("machinedeployments", "workers", json!({"spec": {"replicas": replicas}}));
                Ok(handle())
            }
            Some(Fault::Hold) => {
                self.hold().await;
                Ok(handle())
            }
            Some(Fault::HoldBut(code)) => {
                self.hold().await;
                Ok(answer(code, &status(code, "no")))
            }
            Some(Fault::HoldAnswer) => {
                let answer = handle();
                self.hold().await;
                Ok(answer)
            }
        }
    }

    async fn hold(&self) {
        self.held.notify_one();
        self.released.notified().await;
    }

    fn handle(&self, method: &Method, path: &Path, body: &[u8]) -> Response<Body> {
        let resource = resource(&path.plural);
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let result = match (method, path.name.as_str()) {
            (&Method::GET, "") => {
                let items: Vec<_> = self.all(&path.plural).iter().map(|item| Value::clone(item)).collect();
                return answer(200, &json!({"metadata": {}, "items": items}));
            }
            (&Method::GET, name) => self.objects.get(&resource, NAMESPACE, name),
            (&Method::DELETE, name) => {
                let text = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
                let (uid, resource_version) = (text("uid"), text("resourceVersion"));
                let dry_run = body["dryRun"].is_array();
                let options = DeleteOptions { uid, resource_version, dry_run, ..DeleteOptions::default() };
                let deleted = self.objects.delete(&resource, NAMESPACE, name, &options);
                deleted.map(|(Deleted::Gone(object) | Deleted::Waiting(object))| object)
            }
            (_, name) => {
                let kind = if body.is_array() { PatchKind::Json } else { PatchKind::Merge };
                let subresource = if path.is_scale { Subresource::Scale } else { Subresource::Main };
                let objects = self.objects.as_manager(&path.manager);
                let objects = if path.is_dry_run { objects.dry_run() } else { objects };
                objects.patch(&resource, NAMESPACE, name, kind, subresource, body)
            }
        };
        match result {
            Ok(value) => answer(200, &value),
            Err(refusal) => answer(refusal.code, &status_of(&refusal)),
        }
    }
}

fn mark_of(machine: &Value) -> Option<String> {
    let annotations = machine["metadata"]["annotations"].as_object()?;
    let (_, mark) = annotations.iter().find(|(key, _)| key.ends_with(DELETE_MACHINE))?;
    mark.as_str().map(str::to_owned)
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

/// The parts of a path such as `…/namespaces/team-a/machines/a` or `…/machinedeployments/workers/scale`.
pub(crate) struct Path {
    pub(crate) plural: String,
    pub(crate) name: String,
    is_scale: bool,
    pub(crate) is_dry_run: bool,
    pub(crate) manager: String,
}

impl Path {
    pub(crate) fn parse(uri: &http::Uri) -> Self {
        let mut parts = uri.path().split('/').skip_while(|part| *part != NAMESPACE).skip(1).map(str::to_owned);
        let [plural, name, subresource] = std::array::from_fn(|_| parts.next().unwrap_or_default());
        let query = uri.query().unwrap_or_default();
        let is_dry_run = query.split('&').any(|pair| pair == "dryRun=All");
        let manager = query.split('&').find_map(|pair| pair.strip_prefix("fieldManager="));
        let manager = manager.unwrap_or("capi-autoscaler-provider").to_owned();
        Self { plural, name, is_scale: subresource == "scale", is_dry_run, manager }
    }

    fn call(&self, method: &Method) -> String {
        match (self.plural.as_str(), self.name.as_str(), self.is_scale) {
            ("machines", "", _) => "LIST machines".to_owned(),
            ("machines", name, _) if self.is_dry_run => format!("TRY machine {name}"),
            ("machines", name, _) => format!("{method} machine {name}"),
            (_, _, true) if self.is_dry_run => "TRY scale".to_owned(),
            (_, _, true) => format!("{method} scale"),
            (_, _, false) => format!("{method} group"),
        }
    }
}

pub fn status(code: u16, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "Test", "code": code,
        "details": {"name": "workers"},
    })
}

fn status_of(refusal: &Refusal) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": refusal.message,
        "reason": refusal.reason, "code": refusal.code, "details": refusal.details,
    })
}

pub(crate) fn answer(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = StatusCode::from_u16(code).expect("a status code");
    response
}
