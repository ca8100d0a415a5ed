//! The API calls of commands, and what their answers and failures mean. No decision is made here: a failure is told as
//! what it says of the object's state.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use arcstr::ArcStr;
use capi::{DELETING, Keys, ObjectKey, REPLACED, ScalableKind, Uid};
use http::{header::RETRY_AFTER, response::Parts};
use k8s_openapi::{api::autoscaling::v1::Scale as ScaleObject, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry};
use kube::{
    Client, Resource as _, ResourceExt as _,
    api::{DeleteParams, DynamicObject, GetParams, ListParams, ObjectList, Patch, PatchParams, Preconditions},
    client::Body,
    core::{ApiResource, ObjectMeta, PartialObjectMeta, Request, Status, request},
};
use nodegroup::{
    GroupId, SharedLog,
    writing::{CallError, GroupVersion, SizeWriter},
};
use opentelemetry::{KeyValue, trace::SpanKind};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use shared_informer::ResourceVersion;

use crate::{
    discovery::CoreResources,
    traces::{Span, Traces},
};

/// The label of a Machine that names its MachineDeployment.
const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";

/// How many Machines one page of a list has.
const PAGE: u32 = 500;
/// The greatest number of pages of a list of Machines; an API server that gives more would keep the command for ever.
const MOST_PAGES: u32 = 300;

/// A group's object as it was read.
#[derive(Clone, Debug)]
pub(super) struct GroupSeen {
    pub(super) version: GroupVersion,
    /// Who manages which of its fields.
    pub(super) managed: Vec<ManagedFieldsEntry>,
}

/// What a write makes of a group's object. What isn't named stays as it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct GroupChange {
    pub(super) replicas: Option<i32>,
    /// The log's text, `None` to take the annotation off.
    pub(super) log: Option<String>,
}

/// A Machine that was read whole, before it is given up as one that never joined.
#[derive(Clone, Debug)]
pub(super) struct WholeMachine {
    pub(super) deleting: bool,
    /// The version that this is, for the mark to test.
    pub(super) version: ResourceVersion,
    pub(super) provider_id: Option<ArcStr>,
    /// The name in its nodeRef.
    pub(super) node_name: Option<ArcStr>,
    /// The value of its delete-machine annotation.
    pub(super) delete_mark: Option<ArcStr>,
}

/// A Machine as an answer shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct MachineSeen {
    pub(super) name: ArcStr,
    pub(super) uid: Uid,
    pub(super) version: ResourceVersion,
    pub(super) deleting: bool,
    owners: Vec<(String, String)>,
    /// The MachineDeployment that its label names.
    deployment: Option<String>,
}

impl MachineSeen {
    fn of(metadata: &ObjectMeta) -> Self {
        let owners = metadata.owner_references.iter().flatten();
        Self {
            name: metadata.name.as_deref().unwrap_or_default().into(),
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            version: metadata.resource_version.as_deref().unwrap_or_default().into(),
            deleting: metadata.deletion_timestamp.is_some(),
            owners: owners.map(|owner| (owner.kind.clone(), owner.name.clone())).collect(),
            deployment: metadata.labels.as_ref().and_then(|labels| labels.get(DEPLOYMENT_NAME).cloned()),
        }
    }

    /// Whether one of these owns it.
    pub(super) fn is_of(&self, owners: &[(ScalableKind, ArcStr)]) -> bool {
        let is = |kind: &str, name: &str| owners.iter().any(|owner| owner.0.as_str() == kind && owner.1 == name);
        self.owners.iter().any(|(kind, name)| is(kind, name))
    }
}

/// The API server of the management cluster, for writes and for the reads that a write needs.
#[derive(Clone)]
pub struct Api {
    client: Client,
    resources: Arc<ArcSwapOption<CoreResources>>,
    keys: Keys,
    traces: Traces,
}

impl Api {
    /// Writes through `client`, which must not retry by itself, to the resources that discovery has found.
    #[must_use]
    pub fn new(client: Client, resources: Arc<ArcSwapOption<CoreResources>>, keys: Keys) -> Self {
        Self { client, resources, keys, traces: Traces::default() }
    }

    /// The same, and each call is a span.
    #[must_use]
    pub fn traced(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    /// Returns true if a MachineSet counts Machines that are being deleted as replicas.
    pub(super) fn counts_deleting(&self) -> bool {
        self.keys.counts_deleting()
    }

    pub(super) fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Requests of the kind that `pick` finds, in a namespace.
    fn requests(
        &self,
        namespace: &str,
        pick: impl Fn(&CoreResources) -> Option<&ApiResource>,
    ) -> Result<Request, CallError> {
        let resources = self.resources.load();
        let resource = resources.as_deref().and_then(pick).ok_or(CallError::NotDiscovered)?;
        Ok(Request::new(DynamicObject::url_path(resource, Some(namespace))))
    }

    fn group_requests(&self, id: &GroupId) -> Result<Request, CallError> {
        self.requests(&id.key.namespace, |resources| resources.scalable(id.kind))
    }

    fn machine_requests(&self, namespace: &str) -> Result<Request, CallError> {
        self.requests(namespace, |resources| Some(&resources.machine))
    }

    /// Sends a request. kube's own calls would lose the header Retry-After.
    async fn call<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<T, CallError> {
        let request = request.map_err(|error| CallError::Refused(error.to_string()))?;
        let span = self.span_of(&request);
        let result = self.exchange(request).await;
        match &result {
            Ok(_) => span.end("ok", None),
            Err(error) => span.end(error.label(), Some(error.label().to_owned())),
        }
        result
    }

    /// What an API call is in a trace: its method and path name the object.
    fn span_of(&self, request: &http::Request<Vec<u8>>) -> Span {
        if !self.traces.are_on() {
            return Span::default();
        }
        let (method, path) = (request.method().as_str(), request.uri().path());
        // …/namespaces/NAMESPACE/PLURAL/NAME/SUBRESOURCE
        let mut parts = path.split('/').skip_while(|&part| part != "namespaces").skip(2);
        let (plural, subresource) = (parts.next().unwrap_or_default(), parts.nth(1));
        let name = match subresource {
            Some(subresource) => format!("{method} {plural}/{subresource}"),
            None => format!("{method} {plural}"),
        };
        let attributes =
            vec![KeyValue::new("http.request.method", method.to_owned()), KeyValue::new("url.path", path.to_owned())];
        self.traces.part(name, SpanKind::Client, attributes)
    }

    async fn exchange<T: DeserializeOwned>(&self, request: http::Request<Vec<u8>>) -> Result<T, CallError> {
        let unknown = |error: &dyn fmt::Display| CallError::Unknown(error.to_string(), None);
        let answer = self.client.send(request.map(Body::from)).await.map_err(|error| unknown(&error))?;
        let (head, body) = answer.into_parts();
        let body = body.collect_bytes().await.map_err(|error| unknown(&error))?;
        if head.status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| unknown(&error));
        }
        Err(call_error(&head, &body))
    }

    /// Reads a group's object.
    pub(super) async fn read_group(&self, id: &GroupId) -> Result<GroupSeen, CallError> {
        let request = self.group_requests(id)?.get(&id.key.name, &GetParams::default());
        let object: DynamicObject = self.call(request).await?;
        Ok(GroupSeen { version: version_of(&object), managed: object.metadata.managed_fields.unwrap_or_default() })
    }

    /// Changes a group's object if it still is the one seen: neither its spec nor its log has been written since. That
    /// there is no log is tested by its being null, which API servers hold for true where there is nothing.
    pub(super) async fn write_group(
        &self,
        id: &GroupId,
        seen: &GroupVersion,
        change: &GroupChange,
    ) -> Result<GroupVersion, CallError> {
        let log = log_path();
        let mut patch = tests_of(seen);
        if let Some(replicas) = change.replicas {
            patch.push(json!({"op": "add", "path": "/spec/replicas", "value": replicas}));
        }
        match &change.log {
            Some(text) => patch.push(json!({"op": "add", "path": log, "value": text})),
            None if seen.log.is_some() => patch.push(json!({"op": "remove", "path": log})),
            None => {}
        }
        let patch = json_patch_of(patch)?;
        let request = self.group_requests(id)?.patch(&id.key.name, &PatchParams::default(), &patch);
        Ok(version_of(&self.call(request).await?))
    }

    /// Writes that a Machine of a group is replaced, if the group still tells of the one before. That it tells of none is
    /// tested by its being null, as that there is no log.
    pub(super) async fn write_replaced(
        &self,
        id: &GroupId,
        uid: &Uid,
        known: Option<&str>,
        text: &str,
    ) -> Result<(), CallError> {
        let annotation = format!("/metadata/annotations/{}", REPLACED.replace('/', "~1"));
        let patch = json_patch_of(vec![
            json!({"op": "test", "path": "/metadata/uid", "value": uid.to_string()}),
            json!({"op": "test", "path": annotation, "value": known}),
            json!({"op": "add", "path": annotation, "value": text}),
        ])?;
        let request = self.group_requests(id)?.patch_metadata(&id.key.name, &PatchParams::default(), &patch);
        self.call(request).await.map(|_: IgnoredAny| ())
    }

    /// Writes the size `to`, under the command's own name, if object and size are the ones seen. A Scale of 0 replicas
    /// leaves the field out of its JSON, so that there is nothing to test but its absence, and nothing to replace; and
    /// a size of 0 that is written as a Scale has no manager, so that it is written to the object itself.
    pub(super) async fn write_size(
        &self,
        id: &GroupId,
        seen: &GroupVersion,
        to: i32,
        writer: &SizeWriter,
    ) -> Result<GroupVersion, CallError> {
        let from = seen.replicas;
        let (test, set) = if from == 0 {
            (
                json!({"op": "test", "path": "/spec", "value": {}}),
                json!({"op": "add", "path": "/spec/replicas", "value": to}),
            )
        } else {
            (
                json!({"op": "test", "path": "/spec/replicas", "value": from}),
                json!({"op": "replace", "path": "/spec/replicas", "value": to}),
            )
        };
        let is_same = json!({"op": "test", "path": "/metadata/uid", "value": seen.uid.to_string()});
        let patch = json_patch_of(vec![is_same, test, set])?;
        let params = PatchParams { field_manager: Some(writer.to_string()), ..PatchParams::default() };
        let requests = self.group_requests(id)?;
        if to == 0 {
            return Ok(version_of(&self.call(requests.patch(&id.key.name, &params, &patch)).await?));
        }
        let request = requests.patch_subresource("scale", &id.key.name, &params, &patch);
        let scale: ScaleObject = self.call(request).await?;
        Ok(GroupVersion {
            resource_version: scale.metadata.resource_version.unwrap_or_default().into(),
            // A Scale doesn't say it. If it is another, the next write that tests it fails, and the object is read.
            generation: seen.generation.saturating_add(1),
            replicas: scale.spec.and_then(|spec| spec.replicas).unwrap_or_default(),
            ..seen.clone()
        })
    }

    /// Writes the size `to`, under the command's own name, if neither the spec nor the log of the group seen has been
    /// written since: the Machines that were counted for it after it was seen are counted by both.
    pub(super) async fn write_counted_size(
        &self,
        id: &GroupId,
        seen: &GroupVersion,
        to: i32,
        writer: &SizeWriter,
    ) -> Result<GroupVersion, CallError> {
        let mut patch = tests_of(seen);
        patch.push(json!({"op": "add", "path": "/spec/replicas", "value": to}));
        let params = PatchParams { field_manager: Some(writer.to_string()), ..PatchParams::default() };
        let request = self.group_requests(id)?.patch(&id.key.name, &params, &json_patch_of(patch)?);
        Ok(version_of(&self.call(request).await?))
    }

    /// Reads a Machine; `None` when there is none of that name and uid.
    pub(super) async fn read_machine(&self, key: &ObjectKey, uid: &Uid) -> Result<Option<MachineSeen>, CallError> {
        let request = self.machine_requests(&key.namespace)?.get_metadata(&key.name, &GetParams::default());
        match self.call::<PartialObjectMeta>(request).await {
            Ok(found) => Ok(Some(MachineSeen::of(&found.metadata)).filter(|seen| seen.uid == *uid)),
            Err(CallError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads all that tells whether a Machine has joined; `None` when there is none of that name and uid.
    pub(super) async fn read_whole_machine(
        &self,
        key: &ObjectKey,
        uid: &Uid,
    ) -> Result<Option<WholeMachine>, CallError> {
        let request = self.machine_requests(&key.namespace)?.get(&key.name, &GetParams::default());
        let found: DynamicObject = match self.call(request).await {
            Ok(found) => found,
            Err(CallError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let text = |pointer: &str| {
            let text = found.data.pointer(pointer).and_then(Value::as_str);
            text.filter(|text| !text.is_empty()).map(ArcStr::from)
        };
        let is_same = found.metadata.uid.as_deref().is_some_and(|found| *uid == Uid::from(found));
        Ok(is_same.then(|| WholeMachine {
            deleting: found.metadata.deletion_timestamp.is_some(),
            version: found.metadata.resource_version.as_deref().unwrap_or_default().into(),
            provider_id: text("/spec/providerID"),
            node_name: text("/status/nodeRef/name"),
            delete_mark: found.annotations().get(&*self.keys.delete_machine).map(|mark| mark.as_str().into()),
        }))
    }

    /// All Machines of a namespace that belong to a group, by their owners.
    pub(super) async fn list_machines(
        &self,
        id: &GroupId,
        owners: &[(ScalableKind, ArcStr)],
    ) -> Result<Vec<MachineSeen>, CallError> {
        let machines = self.machine_requests(&id.key.namespace)?;
        let mut params = ListParams::default().limit(PAGE);
        let mut seen = Vec::new();
        for _ in 0..MOST_PAGES {
            let page: ObjectList<PartialObjectMeta> = self.call(machines.list_metadata(&params)).await?;
            let machines = page.items.iter().map(|item| MachineSeen::of(&item.metadata));
            // Of a MachineSet that the watch hasn't shown yet only the label tells.
            let is_labelled = |machine: &MachineSeen| {
                id.kind == ScalableKind::MachineDeployment && machine.deployment.as_deref() == Some(&*id.key.name)
            };
            seen.extend(machines.filter(|machine| machine.is_of(owners) || is_labelled(machine)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(seen),
            }
        }
        Err(CallError::Refused(format!("the list of Machines has more than {MOST_PAGES} pages of {PAGE}")))
    }

    /// Sets the delete-machine annotation of a Machine, and returns the Machine as it is then. The uid makes sure that it is
    /// still the same Machine, and a version that nothing of it has changed since.
    pub(super) async fn set_mark(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        version: Option<&ResourceVersion>,
        value: &str,
    ) -> Result<MachineSeen, CallError> {
        let mut patch = json!({
            "metadata": {"uid": uid.to_string(), "annotations": {self.keys.delete_machine.as_str(): value}},
        });
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        let machines = self.machine_requests(&key.namespace)?;
        let request = machines.patch_metadata(&key.name, &PatchParams::default(), &Patch::Merge(patch));
        self.call(request).await.map(|marked: PartialObjectMeta| MachineSeen::of(&marked.metadata))
    }

    /// Takes the delete-machine annotation off a Machine if it has this value, and nothing of it has changed since this
    /// version.
    pub(super) async fn take_mark(
        &self,
        key: &ObjectKey,
        value: &str,
        version: &ResourceVersion,
    ) -> Result<(), CallError> {
        let annotation = format!("/metadata/annotations/{}", self.keys.delete_machine.replace('/', "~1"));
        let operations = vec![
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": version.to_string()}),
            json!({"op": "test", "path": annotation, "value": value}),
            json!({"op": "remove", "path": annotation}),
        ];
        let (patch, params) = (json_patch_of(operations)?, PatchParams::default());
        let request = self.machine_requests(&key.namespace)?.patch_metadata(&key.name, &params, &patch);
        self.call(request).await.map(|_: IgnoredAny| ())
    }

    /// Deletes a Machine if it still has this uid, and is of this version where one is given.
    pub(super) async fn delete_machine(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        version: Option<&ResourceVersion>,
    ) -> Result<(), CallError> {
        let resource_version = version.map(ToString::to_string);
        let preconditions = Preconditions { uid: Some(uid.to_string()), resource_version };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = self.machine_requests(&key.namespace)?.delete(&key.name, &params);
        self.call(request).await.map(|_: IgnoredAny| ())
    }
}

fn log_path() -> String {
    format!("/metadata/annotations/{}", DELETING.replace('/', "~1"))
}

/// Tests that a group's object still is the one seen: neither its spec nor its log has been written since.
fn tests_of(seen: &GroupVersion) -> Vec<Value> {
    vec![
        json!({"op": "test", "path": "/metadata/uid", "value": seen.uid.to_string()}),
        json!({"op": "test", "path": "/metadata/generation", "value": seen.generation}),
        json!({"op": "test", "path": log_path(), "value": seen.log.as_ref().and_then(SharedLog::as_str)}),
    ]
}

fn json_patch_of(operations: Vec<Value>) -> Result<Patch<()>, CallError> {
    let patch = serde_json::from_value(Value::Array(operations));
    patch.map(Patch::Json).map_err(|error| CallError::Refused(error.to_string()))
}

fn version_of(object: &DynamicObject) -> GroupVersion {
    let replicas = object.data.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
    GroupVersion {
        uid: object.metadata.uid.as_deref().unwrap_or_default().into(),
        resource_version: object.metadata.resource_version.as_deref().unwrap_or_default().into(),
        generation: object.metadata.generation.unwrap_or_default(),
        replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
        log: object.annotations().get(DELETING).map(|text| SharedLog::new(text.as_str().into())),
    }
}

fn call_error(head: &Parts, body: &[u8]) -> CallError {
    let code = head.status;
    // A proxy's answer, and that to a path that isn't served, is text.
    let status: Status = serde_json::from_slice(body)
        .unwrap_or_else(|_| Status { message: String::from_utf8_lossy(body).trim().to_owned(), ..Status::default() });
    let message = if status.message.is_empty() { code.to_string() } else { status.message };
    let header = head.headers.get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    let details = status.details.as_ref();
    let seconds = header.or_else(|| details.map(|details| u64::from(details.retry_after_seconds)));
    let after = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    match code.as_u16() {
        // A test of a patch that fails is answered so, and so is what a policy denies that gives no reason of its own.
        422 if !is_by_admission(&message) => CallError::Rejected(message),
        // 410: the next page of a list that has grown too old, to be begun anew.
        409 | 410 => CallError::Conflict(message),
        429 => CallError::Busy(message, after),
        // One that is about the path, for a version that isn't served any more, says nothing of the object.
        404 if details.is_some_and(|details| !details.name.is_empty()) => CallError::Missing(message),
        404 => CallError::NotDiscovered,
        // Proxies answer so when the one behind them, or the one before, was too slow: it may be done.
        408 | 499 => CallError::Unknown(format!("{code}: {message}"), after),
        401 => CallError::Unauthorized(message),
        403 if !is_by_admission(&message) => CallError::Forbidden(message),
        400..=499 => CallError::Refused(message),
        _ => CallError::Unknown(format!("{code}: {message}"), after),
    }
}

/// Returns true if a webhook or a policy has denied it, which answers 403 or 422 as well. Neither a right nor a new look mends that.
fn is_by_admission(message: &str) -> bool {
    message.contains("admission webhook") || message.contains("AdmissionPolicy '")
}
