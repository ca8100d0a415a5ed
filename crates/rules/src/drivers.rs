//! The drivers that the annotations `dra-driver` and `csi-driver` name, and those that are remembered. The protocol can't
//! carry them yet (kubernetes/autoscaler#10277); annotations are parsed so that a mistake is reported now, and `explain`
//! shows all.

use std::collections::BTreeMap;

use crate::capi::CAPACITY_PREFIX;
use arcstr::ArcStr;
use k8s_pb::{
    api::resource::v1::{Device, DeviceAttribute, DeviceCapacity, ResourcePool, ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::{api::resource::Quantity as WireQuantity, apis::meta::v1::ObjectMeta},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    Problem, ProblemKind, Quantity, Source, problem::parse_list, remembered::Offers, resource_list::device_count,
};

/// The suffix of the capacity annotation that names the driver of devices.
pub(super) const DRA_DRIVER: &str = "dra-driver";
/// The suffix of the capacity annotation that holds volume limits.
pub(super) const CSI_DRIVER: &str = "csi-driver";
/// The suffix of the capacity annotation that counts the devices.
const GPU_COUNT: &str = "gpu-count";

/// The maximum number of devices in a ResourceSlice.
const MOST_DEVICES: i64 = 128;

/// A driver of the Node that would join.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Driver {
    /// What it offers.
    pub kind: DriverKind,
    /// Its name.
    #[serde(rename = "driver")]
    pub name: String,
    /// The number of devices, or the maximum number of volumes.
    pub count: u32,
    /// What states it.
    #[serde(flatten)]
    pub source: Source,
    /// The numbers of devices that are alike, as what is remembered has them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub alike: BTreeMap<String, u32>,
}

/// What a driver offers on a Node.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverKind {
    /// Devices of Dynamic Resource Allocation, in a ResourceSlice: each has the string attribute `type` = `gpu`.
    Dra,
    /// Volumes, which its CSINode limits.
    Csi,
}

impl Driver {
    /// Returns a note that Cluster Autoscaler isn't informed of it.
    #[must_use]
    pub fn note(&self) -> String {
        let Self { kind, name, count, source, .. } = self;
        match kind {
            DriverKind::Dra => format!(
                "{source}: {count} devices of driver {name} can't be sent to Cluster Autoscaler yet, the protocol has no \
                 field for them (kubernetes/autoscaler#10277)"
            ),
            DriverKind::Csi => format!(
                "{source}: the limit of {count} volumes of driver {name} can't be sent to Cluster Autoscaler yet, the \
                 protocol has no field for it"
            ),
        }
    }
}

/// Returns the drivers that the annotations name, and a problem for every entry that is invalid. Empty values are
/// skipped.
#[must_use]
pub fn drivers(annotations: &BTreeMap<ArcStr, ArcStr>) -> (Vec<Driver>, Vec<Problem>) {
    let mut problems = Vec::new();
    let get = |name: &str| {
        let (key, value) = annotations.get_key_value(format!("{CAPACITY_PREFIX}{name}").as_str())?;
        (!value.is_empty()).then_some((key, value.as_str()))
    };
    let dra = get(DRA_DRIVER).and_then(|(key, name)| {
        let devices = get(GPU_COUNT).map(|(_, count)| count);
        match device_number(name, devices) {
            Ok(count) => count.map(|count| driver(DriverKind::Dra, name, count, key)),
            Err(rule) => {
                let rule = format!("{rule}; it is ignored");
                problems.push(Problem::annotation(ProblemKind::Capacity, key, name, &rule));
                None
            }
        }
    });
    let mut csi: Vec<Driver> = Vec::new();
    if let Some((key, text)) = get(CSI_DRIVER) {
        let (limits, invalid) = parse_list((ProblemKind::Capacity, key, "drivers"), text, volume_limit);
        for (name, limit) in limits {
            csi.retain(|other| other.name != name);
            csi.push(driver(DriverKind::Csi, &name, limit, key));
        }
        problems.extend(invalid);
    }
    (dra.into_iter().chain(csi).collect(), problems)
}

/// Returns the drivers that are remembered, without those that annotations name.
pub(super) fn remembered(offers: &Offers, stated: &[Driver], source: &Source) -> Vec<Driver> {
    let driver = |kind, name: &String, count, alike: &BTreeMap<_, _>| Driver {
        kind,
        name: name.clone(),
        count,
        source: source.clone(),
        alike: alike.clone(),
    };
    let none = BTreeMap::new();
    let devices = offers.devices.iter().map(|(name, of)| driver(DriverKind::Dra, name, of.count, &of.alike));
    let volumes = offers.volumes.iter().map(|(name, count)| driver(DriverKind::Csi, name, *count, &none));
    let is_stated = |it: &Driver| stated.iter().any(|other| (other.kind, &other.name) == (it.kind, &it.name));
    devices.chain(volumes).filter(|driver| !is_stated(driver)).collect()
}

/// Returns the ResourceSlices of a Node with this name: for each driver of devices a pool of the Node's name, and for those
/// of an annotation the devices that Cluster Autoscaler's own provider makes. Nothing sends them: the protocol has no field
/// yet.
#[must_use]
pub fn resource_slices(drivers: &[Driver], node: &str) -> Vec<ResourceSlice> {
    let of_devices = drivers.iter().filter(|driver| driver.kind == DriverKind::Dra && driver.count > 0);
    of_devices.flat_map(|driver| slices_of(driver, node)).collect()
}

fn slices_of(driver: &Driver, node: &str) -> Vec<ResourceSlice> {
    let devices = devices(driver);
    let slices = devices.chunks(usize::try_from(MOST_DEVICES).unwrap_or(usize::MAX));
    let count = i64::try_from(slices.len()).unwrap_or(i64::MAX);
    let name = |number: usize| match number {
        0 => format!("{node}-{}", driver.name),
        more => format!("{node}-{}-{more}", driver.name),
    };
    let slice = |(number, devices): (usize, &[Device])| ResourceSlice {
        metadata: Some(ObjectMeta { name: Some(name(number)), ..ObjectMeta::default() }),
        spec: Some(ResourceSliceSpec {
            driver: Some(driver.name.clone()),
            node_name: Some(node.to_owned()),
            pool: Some(ResourcePool {
                name: Some(node.to_owned()),
                generation: None,
                resource_slice_count: Some(count),
            }),
            devices: devices.to_vec(),
            ..ResourceSliceSpec::default()
        }),
    };
    slices.enumerate().map(slice).collect()
}

fn devices(driver: &Driver) -> Vec<Device> {
    let named = |number| Device { name: Some(format!("gpu-{number}")), ..Device::default() };
    if let Source::Annotation(_) = driver.source {
        let gpu = DeviceAttribute { string: Some("gpu".to_owned()), ..DeviceAttribute::default() };
        let attributes = BTreeMap::from([("type".to_owned(), gpu)]);
        return (0..driver.count).map(|number| Device { attributes: attributes.clone(), ..named(number) }).collect();
    }
    let alike = driver.alike.iter().flat_map(|(text, count)| vec![device(text); *count as usize]);
    // Nodes differ in the others.
    let all = alike.chain(std::iter::repeat(Device::default())).zip(0..driver.count);
    all.map(|(device, number)| Device { name: Some(format!("device-{number}")), ..device }).collect()
}

/// Returns a device with these attributes and this capacity, which are JSON of the API.
fn device(text: &str) -> Device {
    let alike: Value = serde_json::from_str(text).unwrap_or_default();
    let values = |field: &str| alike[field].as_object().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let attribute = |(name, value): (String, Value)| {
        let attribute = DeviceAttribute {
            int: value["int"].as_i64(),
            bool: value["bool"].as_bool(),
            string: text(&value["string"]),
            version: text(&value["version"]),
        };
        (name, attribute)
    };
    let capacity = |(name, value): (String, Value)| {
        let value = text(&value["value"]).map(|string| WireQuantity { string: Some(string) });
        (name, DeviceCapacity { value, ..DeviceCapacity::default() })
    };
    Device {
        attributes: values("attributes").into_iter().map(attribute).collect(),
        capacity: values("capacity").into_iter().map(capacity).collect(),
        ..Device::default()
    }
}

fn driver(kind: DriverKind, name: &str, count: u32, key: &ArcStr) -> Driver {
    Driver { kind, name: name.to_owned(), count, source: Source::Annotation(key.clone()), alike: BTreeMap::new() }
}

/// Returns the number of devices. `None` if it is 0, or invalid: the latter is a problem of `gpu-count`
/// itself.
fn device_number(name: &str, devices: Option<&str>) -> Result<Option<u32>, String> {
    if name.chars().any(|c| c.is_ascii_uppercase()) || !is_driver_name(name) {
        return Err(format!("it must be a driver's name such as gpu.example.com: {DRIVER_NAME}, in lower case"));
    }
    let Some(devices) = devices else {
        return Err(format!("the annotation {CAPACITY_PREFIX}{GPU_COUNT} must say how many devices there are"));
    };
    let Ok(devices) = device_count(devices) else { return Ok(None) };
    if devices > Quantity::from_units(MOST_DEVICES) {
        return Err(format!("{GPU_COUNT} is {devices}, and one ResourceSlice holds at most {MOST_DEVICES} devices"));
    }
    let devices = u32::try_from(devices.value()).unwrap_or_default();
    Ok((devices > 0).then_some(devices))
}

fn volume_limit(entry: &str) -> Result<(String, u32), String> {
    let (name, limit) = entry.split_once('=').ok_or("it must be written name=limit, such as ebs.csi.aws.com=25")?;
    if !is_driver_name(name) {
        return Err(format!("the text before the = must be a driver's name such as ebs.csi.aws.com: {DRIVER_NAME}"));
    }
    let limit = limit.parse::<i32>().ok().and_then(|limit| u32::try_from(limit).ok());
    let limit = limit.ok_or("the limit must be a whole number of volumes from 0 to 2147483647")?;
    Ok((name.to_owned(), limit))
}

const DRIVER_NAME: &str =
    "at most 63 letters, digits, '-' and '.', where each part starts and ends with a letter or digit";

pub(super) fn is_driver_name(name: &str) -> bool {
    let is_part = |part: &str| {
        part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    name.len() <= 63 && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;
    use rstest::rstest;

    use super::*;

    fn annotated(annotations: &[(&str, &str)]) -> BTreeMap<ArcStr, ArcStr> {
        let key = |name: &str| ArcStr::from(format!("{CAPACITY_PREFIX}{name}"));
        annotations.iter().map(|(name, value)| (key(name), ArcStr::from(*value))).collect()
    }

    fn csi(annotations: &[(&str, &str)]) -> Vec<(String, u32)> {
        let (drivers, problems) = drivers(&annotated(annotations));
        assert_eq!(problems, []);
        drivers.into_iter().map(|driver| (driver.name, driver.count)).collect()
    }

    #[test]
    fn dra_driver_and_gpu_count_are_devices() {
        let (drivers, problems) = drivers(&annotated(&[("dra-driver", "gpu.nvidia.com"), ("gpu-count", "2")]));
        assert_eq!(problems, []);
        let [driver] = drivers.as_slice() else { panic!("{drivers:?}") };
        assert_eq!((driver.kind, driver.name.as_str(), driver.count), (DriverKind::Dra, "gpu.nvidia.com", 2));
        let note = driver.note();
        for part in ["dra-driver", "2 devices of driver gpu.nvidia.com", "the protocol has no field", "#10277"] {
            assert!(note.contains(part), "{part:?} isn't in {note}");
        }
    }

    #[test]
    fn devices_are_a_slice_of_the_node_as_in_tree() {
        let annotations = annotated(&[("dra-driver", "gpu.nvidia.com"), ("gpu-count", "2"), ("csi-driver", "a=1")]);
        let slices = resource_slices(&drivers(&annotations).0, "workers-template");
        let [ResourceSlice { metadata: Some(metadata), spec: Some(spec) }] = slices.as_slice() else {
            panic!("{slices:?}")
        };
        assert_eq!(metadata.name.as_deref(), Some("workers-template-gpu.nvidia.com"));
        assert_eq!(
            (spec.driver.as_deref(), spec.node_name.as_deref()),
            (Some("gpu.nvidia.com"), Some("workers-template"))
        );
        let pool = spec.pool.as_ref().unwrap();
        assert_eq!((pool.name.as_deref(), pool.resource_slice_count), (Some("workers-template"), Some(1)));
        let device =
            |device: &Device| (device.name.clone().unwrap(), device.attributes["type"].string.clone().unwrap());
        let devices: Vec<_> = spec.devices.iter().map(device).collect();
        assert_eq!(devices, [("gpu-0".to_owned(), "gpu".to_owned()), ("gpu-1".to_owned(), "gpu".to_owned())]);
        assert!(!slices[0].encode_to_vec().is_empty(), "it is a message of the wire");
        assert_eq!(resource_slices(&drivers(&annotated(&[("csi-driver", "a=1")])).0, "node"), []);
    }

    #[rstest]
    #[case::one("ebs.csi.aws.com=25", &[("ebs.csi.aws.com", 25)])]
    #[case::several(" a=1, b=0 ,", &[("a", 1), ("b", 0)])]
    #[case::the_last_of_equal_names("a=1,b=2,a=3", &[("b", 2), ("a", 3)])]
    #[case::upper_case("Disk.CSI.example.com=4", &[("Disk.CSI.example.com", 4)])]
    #[case::empty("", &[])]
    fn csi_limits_are_read(#[case] text: &str, #[case] expected: &[(&str, u32)]) {
        let expected: Vec<_> = expected.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect();
        assert_eq!(csi(&[("csi-driver", text)]), expected);
    }

    #[rstest]
    #[case::none_named(&[("gpu-count", "2")])]
    #[case::no_devices(&[("dra-driver", "gpu.nvidia.com"), ("gpu-count", "0")])]
    #[case::an_empty_name(&[("dra-driver", ""), ("gpu-count", "2")])]
    #[case::a_bad_count_is_reported_once_as_a_count(&[("dra-driver", "gpu.nvidia.com"), ("gpu-count", "some")])]
    fn without_devices_there_is_no_driver_and_no_problem(#[case] annotations: &[(&str, &str)]) {
        assert_eq!(drivers(&annotated(annotations)), (Vec::new(), Vec::new()));
    }

    #[rstest]
    #[case::a_bad_name("dra-driver", "gpu nvidia", "driver's name")]
    #[case::upper_case("dra-driver", "GPU.nvidia.com", "lower case")]
    #[case::a_long_name("dra-driver", "a123456789b123456789c123456789d123456789e123456789f123456789x123", "at most 63")]
    #[case::no_limit("csi-driver", "ebs.csi.aws.com", "written name=limit")]
    #[case::a_bad_csi_name("csi-driver", "-ebs=25", "driver's name")]
    #[case::an_empty_csi_name("csi-driver", "=25", "driver's name")]
    #[case::a_bad_limit("csi-driver", "ebs=many", "whole number of volumes")]
    #[case::a_negative_limit("csi-driver", "ebs=-1", "whole number of volumes")]
    fn a_bad_value_is_ignored_and_named(#[case] name: &str, #[case] value: &str, #[case] rule: &str) {
        let (drivers, problems) = drivers(&annotated(&[(name, value), ("gpu-count", "1")]));
        assert_eq!(drivers, []);
        let [problem] = problems.as_slice() else { panic!("{problems:?}") };
        for part in [name, &format!("{value:?}"), rule, "ignored"] {
            assert!(problem.message.contains(part), "{part:?} isn't in {problem}");
        }
    }

    #[test]
    fn no_more_limits_are_kept_than_a_node_can_need() {
        for (named, expected) in [(100, (100, 0)), (101, (100, 1))] {
            let text: Vec<_> = (0..named).map(|number| format!("csi-{number}=1")).collect();
            let (drivers, problems) = drivers(&annotated(&[("csi-driver", &text.join(","))]));
            assert_eq!((drivers.len(), problems.len()), expected);
        }
    }

    #[test]
    fn a_dra_driver_needs_a_number_of_devices_that_a_slice_can_hold() {
        for (count, rule) in [(None, "gpu-count must say how many"), (Some("129"), "at most 128 devices")] {
            let annotations = [Some(("dra-driver", "gpu.nvidia.com")), count.map(|count| ("gpu-count", count))];
            let (drivers, problems) = drivers(&annotated(&annotations.into_iter().flatten().collect::<Vec<_>>()));
            assert_eq!(drivers, []);
            assert!(problems[0].message.contains(rule), "{problems:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), count in any::<String>()) {
            let _ = drivers(&annotated(&[("dra-driver", &text), ("csi-driver", &text), ("gpu-count", &count)]));
        }
    }
}
