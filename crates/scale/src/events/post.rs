//! Builds Events (`events.k8s.io/v1`, in the namespace of the group's object) and makes their API calls.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use rules::capi::ScalableKind;
use serde_json::json;

use super::{EventContent, Occurrence};
use connect::discovery::CoreResources;

/// The `reportingController` of every Event.
const CONTROLLER: &str = "capi-autoscaler-provider";
/// The maximum length of a note in bytes; API servers accept 1 KiB.
const LONGEST_NOTE: usize = 1000;
/// The maximum length of the end of a note, which names its origin: as long as the names of three clients.
const LONGEST_ORIGIN: usize = 840;
/// The maximum length of the other texts in bytes.
const LONGEST_TEXT: usize = 128;
/// The maximum length of the object's name in that of its Event, which adds up to 17 characters; the API allows 253.
const LONGEST_NAME: usize = 230;
const ELLIPSIS: &str = "…";

/// An Event that the API server has stored.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The reason why an Event couldn't be posted.
#[derive(Debug)]
pub(super) enum NotPosted {
    /// The credentials aren't accepted, or the permission is missing.
    Forbidden(String),
    /// The Event of a series has expired, since Events live for an hour, or its namespace is gone.
    Gone,
    /// Any other failure.
    Failed(String),
}

pub(super) struct Poster {
    client: Client,
    resources: Arc<ArcSwapOption<CoreResources>>,
    instance: String,
    /// The number of Events so far, which makes names unique within one clock tick.
    posted: u64,
}

impl Poster {
    pub(super) fn new(client: Client, resources: Arc<ArcSwapOption<CoreResources>>, instance: &str) -> Self {
        let instance = if instance.is_empty() { CONTROLLER } else { instance };
        Self { client, resources, instance: clipped(instance, LONGEST_TEXT), posted: 0 }
    }

    fn api(&self, namespace: &str) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) async fn create(&mut self, occurrence: &Occurrence) -> Result<Posted, NotPosted> {
        self.posted += 1;
        let event = self.event(occurrence);
        let namespace = occurrence.group.key.namespace.to_string();
        self.api(&namespace).create(&PostParams::default(), &event).await.map_err(|error| not_posted(&error))?;
        Ok(Posted { namespace, name: event.metadata.name.unwrap_or_default() })
    }

    /// Updates the count of an Event's series.
    pub(super) async fn count(&self, event: &Posted, count: i32, last: Timestamp) -> Result<(), NotPosted> {
        let series = EventSeries { count, last_observed_time: MicroTime(last) };
        let patch = Patch::Merge(json!({"series": series}));
        let patched = self.api(&event.namespace).patch(&event.name, &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| not_posted(&error))
    }

    fn event(&self, occurrence: &Occurrence) -> Event {
        let Occurrence { group, uid, content, at } = occurrence;
        let name = clipped(&group.key.name, LONGEST_NAME);
        // A clipped name ends in an ellipsis, which no name may contain.
        let name = name.trim_end_matches(ELLIPSIS).trim_end_matches(['-', '.']);
        let tick = u64::try_from(at.as_nanosecond()).unwrap_or_default().wrapping_add(self.posted);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{tick:x}")),
                namespace: Some(group.key.namespace.to_string()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(*at)),
            type_: Some(content.reason.event_type().to_owned()),
            reason: Some(content.reason.as_str().to_owned()),
            action: Some(content.reason.action().to_owned()),
            note: Some(note(content)),
            regarding: Some(ObjectReference {
                api_version: self.api_version(group.kind),
                kind: Some(group.kind.to_string()),
                namespace: Some(group.key.namespace.to_string()),
                name: Some(group.key.name.to_string()),
                uid: Some(uid.to_string()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }

    fn api_version(&self, kind: ScalableKind) -> Option<String> {
        let resources = self.resources.load();
        Some(resources.as_deref()?.scalable(kind)?.api_version.clone())
    }
}

fn not_posted(error: &kube::Error) -> NotPosted {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => NotPosted::Forbidden(status.message.clone()),
        kube::Error::Api(status) if status.code == 404 => NotPosted::Gone,
        _ => NotPosted::Failed(error.to_string()),
    }
}

/// Returns a note that the API server accepts. However long its text, its origin stays.
pub(super) fn note(content: &EventContent) -> String {
    let origin = clipped(&content.origin, LONGEST_ORIGIN);
    clipped(&content.note, LONGEST_NOTE - origin.len()) + &origin
}

/// Returns a foreign text on one line, clipped to `longest` bytes.
pub(super) fn clipped(text: &str, longest: usize) -> String {
    let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() > longest {
        let end = (0..=longest - ELLIPSIS.len()).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str(ELLIPSIS);
    }
    text
}
