//! A copy of the program, whose watches are updated when a test says so.

use std::{collections::BTreeSet, sync::Arc};

use arc_swap::ArcSwapOption;
use kube::Client;
use parking_lot::Mutex;
use rules::capi::{Keys, Machine, Node, ObjectKey, ScalableKind, ScalableResource};
use rules::{CapacityWords, ErrorRules, Rules, Scope, TemplateRules};
use serde_json::Value;
use tokio::runtime::Handle;

use super::{api::FakeApi, context, meta, resources};
use crate::{Api, EventRecorder, MayWrite, Scale, ScaleMetrics, ScaleOptions, WriteBudget};
use index::{Change, Index};

/// One copy of the program, on the API of a world.
#[derive(Clone)]
pub struct Copy {
    pub index: Arc<Index>,
    pub scale: Scale,
    keys: Keys,
    held: Arc<Mutex<BTreeSet<ObjectKey>>>,
    api: FakeApi,
}

impl Copy {
    pub(super) fn new(
        api: &FakeApi,
        options: ScaleOptions,
        tenant: Option<Arc<dyn MayWrite>>,
        events: EventRecorder,
    ) -> Self {
        Self::with_keys(api, Keys::default(), options, tenant, events)
    }

    /// Returns the copy of a program whose annotation keys are those of another API group.
    pub(super) fn of_group(group: &str, api: &FakeApi) -> Self {
        Self::with_keys(api, Keys::new(group), ScaleOptions::default(), None, EventRecorder::off())
    }

    /// Returns another copy of the program, whose watches show the present objects.
    pub(super) fn another(&self) -> Self {
        Self::with_keys(&self.api, self.keys.clone(), ScaleOptions::default(), None, EventRecorder::off())
    }

    fn with_keys(
        api: &FakeApi,
        keys: Keys,
        options: ScaleOptions,
        tenant: Option<Arc<dyn MayWrite>>,
        events: EventRecorder,
    ) -> Self {
        let index = Arc::new(empty_index());
        let calls = api.clone();
        let client = Client::new(tower::service_fn(move |request| calls.clone().serve(request)), "default");
        let resources = Arc::new(ArcSwapOption::from_pointee(resources()));
        let calls = Api::new(client, resources, keys.clone());
        let calls = match tenant {
            Some(tenant) => calls.of_tenant(tenant, &WriteBudget::default()),
            None => calls,
        };
        let scale = Scale::new(Arc::clone(&index), calls, options, ScaleMetrics::default(), events, Handle::current());
        let copy = Self { index, scale, keys, held: Arc::default(), api: api.clone() };
        copy.watch();
        copy
    }

    /// Lets the watches show all objects.
    pub fn watch(&self) {
        let mut held = BTreeSet::new();
        for plural in ["machinedeployments", "machinesets", "machinepools", "machines"] {
            for value in self.api.all(plural) {
                show(&self.index, &value);
                if plural == "machines" {
                    held.insert(meta(&value).key);
                }
            }
        }
        let before = std::mem::replace(&mut *self.held.lock(), held.clone());
        for key in before.difference(&held) {
            self.index.apply_quietly(Change::MachineGone(key.clone()));
        }
    }
}

/// Lets the watches of an index show an object.
pub(crate) fn show(index: &Index, value: &Value) {
    let (meta, context) = (meta(value), context());
    let scalable = |kind| {
        let object = ScalableResource::decode(kind, meta.clone(), value, &context).expect("decodes");
        Change::Scalable(Arc::new(object))
    };
    index.apply_quietly(match value["kind"].as_str() {
        Some("Node") => Change::Node(Arc::new(Node::decode(meta, value, &context).expect("decodes"))),
        Some("Machine") => Change::Machine(Arc::new(Machine::decode(meta, value, &context).expect("decodes"))),
        Some("MachineDeployment") => scalable(ScalableKind::MachineDeployment),
        Some("MachineSet") => scalable(ScalableKind::MachineSet),
        _ => scalable(ScalableKind::MachinePool),
    });
}

/// Returns the index of a program that has seen no object.
pub(crate) fn empty_index() -> Index {
    Index::new(Rules {
        keys: Keys::default(),
        scope: Scope::All,
        template: TemplateRules::default(),
        prices: Arc::default(),
        errors: ErrorRules::default(),
        capacity_words: CapacityWords::new(["no blade left"]).expect("words"),
    })
}
