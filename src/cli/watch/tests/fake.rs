//! A minimal API server: discovery in both forms, lists and watches of prepared objects, and refusals.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::broadcast, task::JoinHandle};
use tokio_stream::wrappers::BroadcastStream;

use change_stream::changes::FieldSelector;
use rules::LabelSelector;

/// A kind that is served.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FakeKind {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: String,
    pub(super) short: Vec<&'static str>,
    pub(super) namespaced: bool,
    pub(super) verbs: Vec<&'static str>,
}

impl FakeKind {
    pub(super) fn new(group: &'static str, version: &'static str, kind: &'static str) -> Self {
        let plural = format!("{}s", kind.to_lowercase());
        Self { group, version, kind, plural, short: vec![], namespaced: true, verbs: vec!["get", "list", "watch"] }
    }

    pub(super) fn short(self, name: &'static str) -> Self {
        Self { short: vec![name], ..self }
    }

    pub(super) fn cluster_scoped(self) -> Self {
        Self { namespaced: false, ..self }
    }

    fn root(&self) -> String {
        let prefix = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        format!("{prefix}/{}", self.version)
    }
}

#[derive(Default)]
struct Served {
    kinds: Vec<FakeKind>,
    /// The objects, by plural, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    version: u64,
    /// The history: version, plural, namespace, watch frame.
    history: Vec<(u64, String, String, Value)>,
    namespaces: BTreeSet<String>,
    /// The forbidden pairs of verb and plural.
    forbidden: BTreeSet<(&'static str, &'static str)>,
}

struct Shared {
    served: Mutex<Served>,
    /// The events: plural, namespace, watch frame.
    events: broadcast::Sender<(String, String, Value)>,
}

pub(super) struct Fake {
    shared: Arc<Shared>,
    folder: TempDir,
    task: JoinHandle<()>,
}

impl Fake {
    pub(super) async fn start(kinds: Vec<FakeKind>) -> Self {
        let namespaces = ["default", "team-a", "team-b"].map(str::to_owned).into();
        let served = Mutex::new(Served { kinds, version: 1, namespaces, ..Served::default() });
        let shared = Arc::new(Shared { served, events: broadcast::Sender::new(1000) });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let (address, task) = testkit::serve(router).await;
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, namespace: team-a}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n"
        );
        std::fs::write(folder.path().join("config"), kubeconfig).unwrap();
        Self { shared, folder, task }
    }

    /// Starts a server of Cluster API with two of its kinds, and of Secrets and Nodes.
    pub(super) async fn usual() -> Self {
        let capi = |kind| FakeKind::new("cluster.x-k8s.io", "v1beta2", kind);
        Self::start(vec![
            FakeKind::new("", "v1", "Secret"),
            FakeKind::new("", "v1", "Node").short("no").cluster_scoped(),
            capi("Cluster").short("cl"),
            capi("Machine").short("ma"),
        ])
        .await
    }

    pub(super) fn kubeconfig(&self) -> String {
        self.folder.path().join("config").display().to_string()
    }

    pub(super) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(super) fn forbid(&self, verb: &'static str, plural: &'static str) {
        self.served(|served| served.forbidden.insert((verb, plural)));
    }

    pub(super) fn install(&self, kind: FakeKind) {
        self.served(|served| served.kinds.push(kind));
    }

    /// Removes a kind with all its objects, and ends its watches.
    pub(super) fn uninstall(&self, kind: &str) {
        let plural = self.served(|served| {
            let position = served.kinds.iter().position(|served| served.kind == kind).unwrap();
            served.kinds.remove(position).plural
        });
        let _ = self.shared.events.send((plural, String::new(), Value::Null));
    }

    fn served<T>(&self, then: impl FnOnce(&mut Served) -> T) -> T {
        then(&mut self.shared.served.lock().unwrap())
    }

    /// Creates or changes an object, identified by `namespace/name` (or a name).
    #[allow(clippy::needless_pass_by_value, reason = "literals are handed over")]
    pub(super) fn put(&self, plural: &str, key: &str, content: Value) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        self.served(|served| {
            served.version += 1;
            let kind = served.kinds.iter().find(|kind| kind.plural == plural).unwrap().clone();
            let mut object = json!({"metadata": {"name": name, "uid": format!("uid-{name}")}});
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = namespace.into();
            }
            json_patch::merge(&mut object, &content);
            object["metadata"]["resourceVersion"] = served.version.to_string().into();
            let place = (plural.to_owned(), namespace.to_owned(), name.to_owned());
            let known = served.objects.insert(place, object.clone()).is_some();
            let event = json!({"type": if known { "MODIFIED" } else { "ADDED" }, "object": object});
            self.send(served, &kind, namespace, event);
        });
    }

    pub(super) fn delete(&self, plural: &str, key: &str) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        self.served(|served| {
            served.version += 1;
            let kind = served.kinds.iter().find(|kind| kind.plural == plural).unwrap().clone();
            let place = (plural.to_owned(), namespace.to_owned(), name.to_owned());
            let mut object = served.objects.remove(&place).unwrap();
            object["metadata"]["resourceVersion"] = served.version.to_string().into();
            self.send(served, &kind, namespace, json!({"type": "DELETED", "object": object}));
        });
    }

    /// Sends an event. It is called under the lock, so that a watch that begins misses nothing and receives nothing
    /// twice.
    fn send(&self, served: &mut Served, kind: &FakeKind, namespace: &str, mut event: Value) {
        event["object"]["kind"] = kind.kind.into();
        event["object"]["apiVersion"] = format!("{}/{}", kind.group, kind.version).trim_start_matches('/').into();
        served.history.push((served.version, kind.plural.clone(), namespace.to_owned(), event.clone()));
        // There may be no watch.
        let _ = self.shared.events.send((kind.plural.clone(), namespace.to_owned(), event));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message});
    (StatusCode::from_u16(code).unwrap(), axum::body::Bytes::from(body.to_string())).into_response()
}

fn said(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let parameters: BTreeMap<String, String> = request
        .uri()
        .query()
        .map(|query| form_urlencoded::parse(query.as_bytes()).into_owned().collect())
        .unwrap_or_default();
    let mut served = shared.served.lock().unwrap();
    if let Some(discovery) = served.discovery(&path) {
        return said(&discovery);
    }
    if let Some(name) = path.strip_prefix("/api/v1/namespaces/").filter(|name| !name.contains('/')) {
        return if served.namespaces.contains(name) {
            said(&json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}))
        } else {
            status(404, "NotFound", "namespaces not found")
        };
    }
    served.objects(&path, &parameters, &shared.events)
}

impl Served {
    fn discovery(&self, path: &str) -> Option<Value> {
        let groups: BTreeSet<_> = match path {
            "/api" => [""].into(),
            "/apis" => self.kinds.iter().map(|kind| kind.group).filter(|group| !group.is_empty()).collect(),
            _ => return None,
        };
        let items: Vec<_> = groups.into_iter().map(|group| self.discovered_group(group)).collect();
        Some(json!({"kind": "APIGroupDiscoveryList", "items": items}))
    }

    fn versions(&self, group: &str) -> Vec<&'static str> {
        let mut versions: Vec<_> =
            self.kinds.iter().filter(|kind| kind.group == group).map(|kind| kind.version).collect();
        versions.dedup();
        versions
    }

    fn discovered_group(&self, group: &str) -> Value {
        let version = |version| {
            let here = self.kinds.iter().filter(|kind| kind.group == group && kind.version == version);
            let resource = |kind: &FakeKind| {
                json!({"resource": kind.plural, "verbs": kind.verbs, "shortNames": kind.short,
                    "responseKind": {"group": "", "version": "", "kind": kind.kind},
                    "singularResource": kind.kind.to_lowercase(),
                    "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }})
            };
            json!({"version": version, "resources": here.map(resource).collect::<Vec<_>>()})
        };
        let versions: Vec<_> = self.versions(group).into_iter().map(version).collect();
        json!({"metadata": {"name": group}, "versions": versions})
    }

    fn objects(
        &self,
        path: &str,
        parameters: &BTreeMap<String, String>,
        events: &broadcast::Sender<(String, String, Value)>,
    ) -> Response {
        let of = |kind: &&FakeKind| {
            path.starts_with(&format!("{}/", kind.root())) && path.ends_with(&format!("/{}", kind.plural))
        };
        let Some(kind) = self.kinds.iter().find(of) else { return status(404, "NotFound", "404 page not found") };
        let namespace = path.split_once("/namespaces/").and_then(|(_, rest)| rest.split('/').next()).map(str::to_owned);
        let watching = parameters.get("watch").is_some_and(|watch| watch == "true");
        let verb = if watching { "watch" } else { "list" };
        if self.forbidden.iter().any(|(forbidden, plural)| *forbidden == verb && *plural == kind.plural) {
            let message = format!("{} is forbidden: User \"u\" cannot {verb} resource", kind.plural);
            return status(403, "Forbidden", &message);
        }
        let labels: Option<LabelSelector> = parameters.get("labelSelector").map(|text| text.parse().unwrap());
        let fields = parameters.get("fieldSelector");
        if let Some(text) = fields.filter(|text| !text.starts_with("metadata.")) {
            return status(400, "BadRequest", &format!("field label not supported: {text}"));
        }
        let fields: Option<FieldSelector> = fields.map(|text| text.parse().unwrap());
        let selected = move |object: &Value| {
            labels.as_ref().is_none_or(|labels| labels.matches(object))
                && fields.as_ref().is_none_or(|fields| fields.matches(object))
        };
        if watching {
            // An API server without streamed lists answers so.
            if parameters.contains_key("sendInitialEvents") {
                return status(422, "Invalid", "sendInitialEvents is forbidden for watch");
            }
            let from: u64 = parameters["resourceVersion"].parse().unwrap();
            let past = self.history.iter().filter(|(version, ..)| *version > from);
            let past = past.map(|(_, plural, place, frame)| (plural.clone(), place.clone(), frame.clone())).collect();
            return stream_of(kind, namespace, selected, past, events);
        }
        let here = self.objects.iter().filter(|((plural, place, _), _)| {
            *plural == kind.plural && namespace.as_ref().is_none_or(|namespace| namespace == place)
        });
        let items: Vec<_> = here.map(|(_, object)| object).filter(|object| selected(object)).collect();
        said(&json!({"kind": "List", "metadata": {"resourceVersion": self.version.to_string()}, "items": items}))
    }
}

/// Streams the `past` events and further ones; the watch ends when its kind is removed.
fn stream_of(
    kind: &FakeKind,
    namespace: Option<String>,
    selected: impl Fn(&Value) -> bool + Send + 'static,
    past: Vec<(String, String, Value)>,
    events: &broadcast::Sender<(String, String, Value)>,
) -> Response {
    let plural = kind.plural.clone();
    let events = BroadcastStream::new(events.subscribe()).filter_map(|event| async { event.ok() });
    let events = stream::iter(past).chain(events).filter(move |(of, place, frame)| {
        let here = *of == plural && namespace.as_ref().is_none_or(|namespace| frame.is_null() || namespace == place);
        futures::future::ready(here && (frame.is_null() || selected(&frame["object"])))
    });
    let frames = events.take_while(|(_, _, frame)| futures::future::ready(!frame.is_null()));
    let lines = frames.map(|(_, _, frame)| Ok::<_, std::io::Error>(format!("{frame}\n")));
    // The head of the answer is sent with the first bytes of its body.
    let begin = stream::once(async { Ok("\n".to_owned()) });
    Response::new(Body::from_stream(begin.chain(lines)))
}
