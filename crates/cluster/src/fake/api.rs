//! A minimal API server: discovery, lists, watches and Secrets, of any kind by its path. Requests come in-process, so
//! that the clock can be tokio's paused one, or over HTTP.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::Arc,
};

use axum::{Router, body::Body};
use http::{Request, Response, Uri};
use k8s_openapi::ByteString;
use kube::Client;
use parking_lot::Mutex;
use rules::capi::OPENSHIFT_GROUP;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tower::ServiceExt as _;

use connect::{Clients, Policy, bounded};

pub const CAPI: &str = "cluster.x-k8s.io";
pub const NAMESPACE: &str = "team-a";

/// An open watch.
struct Watch {
    plural: String,
    /// `None` for all namespaces.
    namespace: Option<String>,
    lines: mpsc::UnboundedSender<Result<String, Infallible>>,
}

/// A past change, for watches that begin at an earlier version.
struct Past {
    version: u64,
    plural: String,
    namespace: String,
    line: String,
}

#[derive(Default)]
struct State {
    version: u64,
    /// True if no request is answered.
    down: bool,
    /// The versions of each group, the preferred one first.
    groups: BTreeMap<String, Vec<String>>,
    /// Plurals by group and kind.
    kinds: BTreeMap<(String, String), String>,
    /// Plurals that are served in only one of their group's versions.
    alone_in: BTreeMap<String, String>,
    /// Objects by plural, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    past: Vec<Past>,
    watches: Vec<Watch>,
    /// Error codes for lists and watches in a namespace, of one plural or of all.
    refused_in: BTreeMap<(String, Option<String>), u16>,
    /// Answers that a test overrides, by path or its last part.
    answers: BTreeMap<String, Answers>,
    /// The number of requests by path.
    asked: BTreeMap<String, usize>,
}

type Answers = Arc<dyn Fn(&Uri) -> Option<Response<Body>> + Send + Sync>;

/// The API server.
#[derive(Clone, Default)]
pub struct FakeApi {
    state: Arc<Mutex<State>>,
    /// Plurals whose lists and watches are left unanswered for now.
    held: watch::Sender<BTreeSet<String>>,
}

impl FakeApi {
    /// Creates a server with Cluster API's kinds except MachinePool, in v1beta2.
    pub fn with_capi() -> Self {
        let api = Self::default();
        api.install_capi();
        api
    }

    pub fn install_capi(&self) {
        self.serve_group(CAPI, &["v1beta2"]);
        for kind in ["Cluster", "MachineDeployment", "MachineSet", "Machine"] {
            self.install(CAPI, kind, &format!("{}s", kind.to_lowercase()));
        }
    }

    /// Creates a server with the kinds of OpenShift's Machine API.
    pub fn with_machine_api() -> Self {
        let api = Self::default();
        api.serve_group(OPENSHIFT_GROUP, &["v1beta1"]);
        for kind in ["MachineSet", "Machine"] {
            api.install(OPENSHIFT_GROUP, kind, &format!("{}s", kind.to_lowercase()));
        }
        api
    }

    /// Serves a group in these versions only, the preferred one first.
    pub fn serve_group(&self, group: &str, versions: &[&str]) {
        let versions = versions.iter().map(|version| (*version).to_owned()).collect();
        self.state.lock().groups.insert(group.to_owned(), versions);
        self.cut_watches("");
    }

    /// Serves a kind in only one of its group's versions.
    pub fn serve_only_in(&self, plural: &str, version: &str) {
        self.state.lock().alone_in.insert(plural.to_owned(), version.to_owned());
        self.cut_watches(plural);
    }

    pub fn install(&self, group: &str, kind: &str, plural: &str) {
        self.state.lock().kinds.insert((group.to_owned(), kind.to_owned()), plural.to_owned());
    }

    /// Removes a kind with its objects.
    pub fn uninstall(&self, group: &str, kind: &str) {
        let mut state = self.state.lock();
        let plural = state.kinds.remove(&(group.to_owned(), kind.to_owned())).unwrap();
        state.objects.retain(|(other, ..), _| *other != plural);
        drop(state);
        self.cut_watches(&plural);
    }

    /// Adds or replaces an object of the namespace. Its uid is that of its name unless it has one.
    pub fn put(&self, plural: &str, name: &str, object: &Value) {
        self.put_in(NAMESPACE, plural, name, object);
    }

    pub fn put_in(&self, namespace: &str, plural: &str, name: &str, object: &Value) {
        let mut state = self.state.lock();
        state.version += 1;
        let mut object = object.clone();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(namespace);
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        }
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        let event = if state.objects.insert(key, object.clone()).is_some() { "MODIFIED" } else { "ADDED" };
        state.send(plural, event, &object);
    }

    /// Adds the Secret by which the workload cluster of a Cluster is reached over HTTP.
    pub fn put_kubeconfig(&self, namespace: &str, cluster: &str, address: SocketAddr) {
        let kubeconfig = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        let value = ByteString(kubeconfig.to_string().into_bytes());
        self.put_in(namespace, "secrets", &format!("{cluster}-kubeconfig"), &json!({"data": {"value": value}}));
    }

    pub fn delete(&self, plural: &str, name: &str) {
        let mut state = self.state.lock();
        state.version += 1;
        let key = (plural.to_owned(), NAMESPACE.to_owned(), name.to_owned());
        let mut object = state.objects.remove(&key).unwrap();
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.send(plural, "DELETED", &object);
    }

    /// Fails lists and watches of a resource, and closes its open watches.
    pub fn refuse(&self, plural: &str, code: u16, message: &str) {
        let message = message.to_owned();
        self.answer_by(plural, move |_| Some(refusal(code, &message)));
    }

    pub fn allow(&self, plural: &str) {
        self.behave(plural);
    }

    /// Fails lists and watches within a namespace, of one resource or of all, and closes their open watches.
    pub fn refuse_in(&self, namespace: &str, plural: Option<&str>, code: u16) {
        let mut state = self.state.lock();
        state.refused_in.insert((namespace.to_owned(), plural.map(str::to_owned)), code);
        let is_cut = |watch: &Watch| {
            watch.namespace.as_deref() == Some(namespace) && plural.is_none_or(|plural| watch.plural == plural)
        };
        state.watches.retain(|watch| !is_cut(watch));
    }

    pub fn allow_in(&self, namespace: &str, plural: Option<&str>) {
        self.state.lock().refused_in.remove(&(namespace.to_owned(), plural.map(str::to_owned))).unwrap();
    }

    /// Lets `answers` answer requests whose path is `path` or ends with it, unless it returns `None`, and closes the
    /// watches of a resource of this name.
    pub fn answer_by(&self, path: &str, answers: impl Fn(&Uri) -> Option<Response<Body>> + Send + Sync + 'static) {
        self.state.lock().answers.insert(path.to_owned(), Arc::new(answers));
        self.cut_watches(path);
    }

    /// Ends the override of [`FakeApi::answer_by`].
    pub fn behave(&self, path: &str) {
        self.state.lock().answers.remove(path).unwrap();
    }

    /// Leaves lists and watches of a resource unanswered.
    pub fn hold(&self, plural: &str) {
        self.held.send_modify(|held| {
            held.insert(plural.to_owned());
        });
    }

    /// Answers the requests that wait, and those to come.
    pub fn release(&self, plural: &str) {
        self.held.send_modify(|held| {
            held.remove(plural);
        });
    }

    /// Refuses all connections, and closes all watches.
    pub fn go_down(&self) {
        self.state.lock().down = true;
        self.cut_watches("");
    }

    pub fn come_up(&self) {
        self.state.lock().down = false;
    }

    /// Closes the watches of a resource, or of all resources if `plural` is empty.
    fn cut_watches(&self, plural: &str) {
        self.state.lock().watches.retain(|watch| !plural.is_empty() && watch.plural != plural);
    }

    /// Returns the number of open watches of a resource.
    pub fn watches(&self, plural: &str) -> usize {
        let mut state = self.state.lock();
        state.watches.retain(|watch| !watch.lines.is_closed());
        state.watches.iter().filter(|watch| watch.plural == plural).count()
    }

    /// Returns true if a path was requested.
    pub fn was_asked(&self, path: &str) -> bool {
        self.asks(path) > 0
    }

    /// Returns the number of requests for a path.
    pub fn asks(&self, path: &str) -> usize {
        self.state.lock().asked.get(path).copied().unwrap_or_default()
    }

    /// Returns clients that send their requests in-process.
    pub fn clients(&self) -> Clients {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (api, mut held) = (api.clone(), api.held.subscribe());
            async move {
                let plural = request.uri().path().rsplit('/').next().unwrap_or_default();
                // The sender lives as long as the server, so this can't fail.
                drop(held.wait_for(|held| !held.contains(plural)).await);
                api.answer(request.uri()).map_err(tower::BoxError::from)
            }
        });
        // The clients have the same limits as the program's own.
        let client = |longest: Option<usize>| {
            Client::new(service.clone().and_then(move |answer| bounded(answer, longest)), "default")
        };
        Clients { watches: client(None), writes: client(Policy::WRITES.longest) }
    }

    /// Serves over HTTP on loopback.
    pub async fn serve(&self) -> SocketAddr {
        let api = self.clone();
        let router = Router::new().fallback(move |request: Request<Body>| async move {
            api.answer(request.uri()).unwrap_or_else(|error| refusal(500, &error.to_string()))
        });
        testkit::serve(router).await.0
    }

    fn answer(&self, uri: &Uri) -> io::Result<Response<Body>> {
        let mut state = self.state.lock();
        if state.down {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        }
        *state.asked.entry(uri.path().to_owned()).or_default() += 1;
        let parts: Vec<_> = uri.path().split('/').skip(1).collect();
        let answers = state.answers.get(uri.path()).or_else(|| state.answers.get(*parts.last()?));
        if let Some(answer) = answers.and_then(|answers| answers(uri)) {
            return Ok(answer);
        }
        let answer = match parts.as_slice() {
            ["apis"] => Some(ok(&state.group_list())),
            ["apis", group, version] => state.resource_list(group, version),
            ["api", "v1", "namespaces", namespace, "secrets", name] => {
                let key = ("secrets".to_owned(), (*namespace).to_owned(), (*name).to_owned());
                state.objects.get(&key).map(ok)
            }
            ["api", "v1", "nodes"] => Some(state.resource("nodes", None, uri)),
            ["api", "v1", "namespaces", namespace, "configmaps"] => {
                Some(state.resource("configmaps", Some(namespace), uri))
            }
            ["apis", group, version, plural] if state.serves(group, version, plural) => {
                Some(state.resource(plural, None, uri))
            }
            ["apis", group, version, "namespaces", namespace, plural] if state.serves(group, version, plural) => {
                Some(state.resource(plural, Some(namespace), uri))
            }
            _ => None,
        };
        Ok(answer.unwrap_or_else(|| refusal(404, "the server could not find the requested resource")))
    }
}

impl State {
    fn send(&mut self, plural: &str, event: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": event, "object": object}));
        let namespace = object["metadata"]["namespace"].as_str().unwrap().to_owned();
        let hears = |watch: &Watch| {
            watch.plural == plural && watch.namespace.as_ref().is_none_or(|covered| *covered == namespace)
        };
        self.watches.retain(|watch| !hears(watch) || watch.lines.send(Ok(line.clone())).is_ok());
        self.past.push(Past { version: self.version, plural: plural.to_owned(), namespace, line });
    }

    fn serves(&self, group: &str, version: &str, plural: &str) -> bool {
        let has_version = self.groups.get(group).is_some_and(|versions| versions.iter().any(|it| it == version));
        has_version && self.is_in(plural, version) && self.kinds.iter().any(|((of, _), it)| of == group && it == plural)
    }

    fn is_in(&self, plural: &str, version: &str) -> bool {
        self.alone_in.get(plural).is_none_or(|alone| alone == version)
    }

    fn group_list(&self) -> Value {
        let group = |(name, versions): (&String, &Vec<String>)| {
            let version = |version: &String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
            let versions: Vec<_> = versions.iter().map(version).collect();
            json!({"name": name, "versions": versions, "preferredVersion": versions[0]})
        };
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": self.groups.iter().map(group).collect::<Vec<_>>()})
    }

    fn resource_list(&self, group: &str, version: &str) -> Option<Response<Body>> {
        self.groups.get(group)?.iter().find(|served| *served == version)?;
        let kinds = self.kinds.iter().filter(|((of, _), plural)| of == group && self.is_in(plural, version));
        let resources: Vec<_> = kinds
            .map(|((_, kind), plural)| {
                json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["list", "watch"]})
            })
            .collect();
        let group_version = format!("{group}/{version}");
        Some(ok(&json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
        })))
    }

    /// Answers a list or a watch, in a namespace or in all.
    fn resource(&mut self, plural: &str, namespace: Option<&str>, uri: &Uri) -> Response<Body> {
        if let Some(namespace) = namespace {
            let of = |plural: Option<&str>| self.refused_in.get(&(namespace.to_owned(), plural.map(str::to_owned)));
            if let Some(code) = of(None).or_else(|| of(Some(plural))) {
                return refusal(*code, &format!("cannot list {plural} in the namespace \"{namespace}\""));
            }
        }
        let is_covered = |of: &str| namespace.is_none_or(|covered| covered == of);
        let query = uri.query().unwrap_or_default();
        if query.contains("sendInitialEvents") {
            return refusal(
                422,
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            );
        }
        if !query.contains("watch=true") {
            let listed = self.objects.iter().filter(|((of, within, _), _)| of == plural && is_covered(within));
            let items: Vec<_> = listed.map(|(_, it)| it).collect();
            return ok(
                &json!({"kind": "List", "metadata": {"resourceVersion": self.version.to_string()}, "items": items}),
            );
        }
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap();
        let from: u64 = from.parse().unwrap();
        let (lines, body) = mpsc::unbounded_channel();
        let missed = |past: &&Past| past.version > from && past.plural == plural && is_covered(&past.namespace);
        for past in self.past.iter().filter(missed) {
            lines.send(Ok(past.line.clone())).unwrap();
        }
        self.watches.push(Watch { plural: plural.to_owned(), namespace: namespace.map(str::to_owned), lines });
        Response::new(Body::from_stream(UnboundedReceiverStream::new(body)))
    }
}

fn ok(body: &Value) -> Response<Body> {
    Response::new(Body::from(body.to_string()))
}

fn refusal(code: u16, message: &str) -> Response<Body> {
    let reason = if code == 403 { "Forbidden" } else { "NotFound" };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    let mut response = ok(&status);
    *response.status_mut() = code.try_into().unwrap();
    response
}
