//! The capacity annotations that Cluster Autoscaler's own provider reads as well. An invalid one is dropped and affects
//! no other.

use std::collections::BTreeMap;

use crate::capi::CAPACITY_PREFIX;
use arcstr::ArcStr;

use crate::{
    Problem, ProblemKind, Quantity, Source,
    drivers::{CSI_DRIVER, DRA_DRIVER},
    labels,
    labels::LABELS,
    provenance::put,
    resource_list::{CPU, Capacity, EPHEMERAL_STORAGE, MEMORY, PODS, bytes_of_node, device_count, quantity},
    taints::TAINTS,
};

const EPHEMERAL_DISK: &str = "ephemeral-disk";
const MAX_PODS: &str = "maxPods";
const GPU_TYPE: &str = "gpu-type";
pub(super) const GPU_COUNT: &str = "gpu-count";

/// The capacity annotations, without their prefix.
pub(super) const KNOWN: [&str; 10] =
    [CPU, MEMORY, EPHEMERAL_DISK, MAX_PODS, GPU_TYPE, GPU_COUNT, LABELS, TAINTS, DRA_DRIVER, CSI_DRIVER];

/// Returns the capacity that the annotations state. An empty value and a value of 0 are skipped, as in Cluster
/// Autoscaler; a cpu or memory of 0 is a problem all the same.
///
/// `gpu-count` counts the resource that `gpu-type` names. With `dra-driver` it counts devices of a ResourceSlice,
/// which the protocol can't carry yet (kubernetes/autoscaler#10277); without a `gpu-type` it then adds no resource.
/// [`drivers`](crate::drivers) reads `dra-driver` and `csi-driver`.
#[must_use]
pub fn of_annotations(annotations: &BTreeMap<ArcStr, ArcStr>) -> (Capacity, Vec<Problem>) {
    let mut reader = Reader { annotations, capacity: Capacity::new(), problems: Vec::new() };
    reader.read(CPU, CPU, quantity);
    reader.read(MEMORY, MEMORY, bytes_of_node);
    reader.read(EPHEMERAL_DISK, EPHEMERAL_STORAGE, bytes_of_node);
    reader.read(MAX_PODS, PODS, plain_integer);
    reader.read_gpus();
    reader.name_unknown();
    (reader.capacity, reader.problems)
}

struct Reader<'a> {
    annotations: &'a BTreeMap<ArcStr, ArcStr>,
    capacity: Capacity,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    /// Returns an annotation's value, unless it is empty.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.entry(name).map(|(_, value)| value)
    }

    /// Returns an annotation's key, as the object holds it, and its value, unless that is empty.
    fn entry(&self, name: &str) -> Option<(&'a ArcStr, &'a str)> {
        let (key, value) = self.annotations.get_key_value(key(name).as_str())?;
        (!value.is_empty()).then_some((key, value.as_str()))
    }

    fn problem(&mut self, name: &str, value: &str, rule: &str) {
        let rule = format!("{rule}; it is ignored");
        self.problems.push(Problem::annotation(ProblemKind::Capacity, &key(name), value, &rule));
    }

    fn read(&mut self, name: &str, resource: &str, parse: fn(&str) -> Result<Quantity, String>) {
        let Some((key, value)) = self.entry(name) else { return };
        match parse(value) {
            Ok(quantity) if !quantity.is_zero() => {
                put(&mut self.capacity, resource, quantity, Source::Annotation(key.clone()));
            }
            Ok(_) if matches!(resource, CPU | MEMORY) => self.problem(name, value, "a Node must have more than 0"),
            Ok(_) => {}
            Err(rule) => self.problem(name, value, &rule),
        }
    }

    fn read_gpus(&mut self) {
        let (resource, count) = (self.get(GPU_TYPE), self.get(GPU_COUNT).map(|count| (count, device_count(count))));
        match (resource, count) {
            // OpenShift's operator writes a count of 0, and no type, for Nodes without a GPU.
            (_, Some((_, Ok(count)))) if count.is_zero() => {}
            (Some(resource), Some(_)) => match labels::check_key(resource) {
                Ok(()) => self.read(GPU_COUNT, resource, device_count),
                Err(rule) => {
                    let rule = format!("it must be the resource's name, such as nvidia.com/gpu: {rule}");
                    self.problem(GPU_TYPE, resource, &rule);
                }
            },
            (Some(resource), None) => {
                let rule = format!("{} must say how many there are", key(GPU_COUNT));
                self.problem(GPU_TYPE, resource, &rule);
            }
            (None, Some((count, Err(rule)))) => self.problem(GPU_COUNT, count, &rule),
            (None, Some((count, Ok(_)))) if self.get(DRA_DRIVER).is_none() => {
                let rule = format!("{} must say the resource's name, such as nvidia.com/gpu", key(GPU_TYPE));
                self.problem(GPU_COUNT, count, &rule);
            }
            (None, Some(_) | None) => {}
        }
    }

    /// Reports unknown keys, which are typing errors.
    fn name_unknown(&mut self) {
        for (key, value) in self.annotations {
            if let Some(name) = key.strip_prefix(CAPACITY_PREFIX)
                && !KNOWN.contains(&name)
            {
                let rule = format!("no such capacity annotation is known; known are {}", KNOWN.join(", "));
                self.problem(name, value, &rule);
            }
        }
    }
}

fn key(name: &str) -> String {
    format!("{CAPACITY_PREFIX}{name}")
}

fn plain_integer(text: &str) -> Result<Quantity, String> {
    match text.parse() {
        Ok(count @ 0..) => Ok(Quantity::from_units(count)),
        Ok(..0) | Err(_) => Err("it must be a plain integer such as 110".to_owned()),
    }
}
