//! The drivers that the annotations `dra-driver` and `csi-driver` name, and those that are remembered. The protocol can't
//! carry them yet (kubernetes/autoscaler#10277); annotations are parsed so that a mistake is reported now, and `explain`
//! shows all.

use std::collections::BTreeMap;

use crate::capi::CAPACITY_PREFIX;
use arcstr::ArcStr;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Problem, ProblemKind, Quantity, Source, problem::parse_list, resource_list::device_count};

/// The suffix of the capacity annotation that names the driver of devices.
pub(super) const DRA_DRIVER: &str = "dra-driver";
/// The suffix of the capacity annotation that holds volume limits.
pub(super) const CSI_DRIVER: &str = "csi-driver";
/// The suffix of the capacity annotation that counts the devices.
const GPU_COUNT: &str = "gpu-count";

/// The maximum number of devices in a ResourceSlice.
pub(super) const MOST_DEVICES: i64 = 128;

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
    /// The number of pools that the devices are in.
    #[serde(skip_serializing_if = "is_one")]
    pub pools: u32,
    /// The numbers of devices that are alike, as what is remembered has them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub alike: BTreeMap<String, u32>,
}

/// What a driver offers on a Node.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverKind {
    /// Devices of Dynamic Resource Allocation, in ResourceSlices.
    Dra,
    /// Volumes, which its CSINode limits.
    Csi,
}

impl Driver {
    /// Returns a note that Cluster Autoscaler isn't informed of it.
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
    let of = |kind, name: &String, count| Driver {
        kind,
        name: name.clone(),
        count,
        source: source.clone(),
        pools: 1,
        alike: BTreeMap::new(),
    };
    let devices = offers.devices.iter().flatten().map(|(name, it)| Driver {
        pools: it.pools,
        alike: it.alike.clone(),
        ..of(DriverKind::Dra, name, it.count)
    });
    let volumes = offers.volumes.iter().flatten().map(|(name, count)| of(DriverKind::Csi, name, *count));
    let is_stated = |it: &Driver| stated.iter().any(|other| (other.kind, &other.name) == (it.kind, &it.name));
    devices.chain(volumes).filter(|driver| !is_stated(driver)).collect()
}

fn driver(kind: DriverKind, name: &str, count: u32, key: &ArcStr) -> Driver {
    let source = Source::Annotation(key.clone());
    Driver { kind, name: name.to_owned(), count, source, pools: 1, alike: BTreeMap::new() }
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

// What the drivers of a Node offer beyond its resources, as it is remembered: volumes, by its CSINode, and devices, by
// its ResourceSlices.

/// The maximum number of drivers of each kind.
const MOST_DRIVERS: usize = 32;
/// The maximum number of devices of a driver.
const MOST_REMEMBERED: u32 = 4096;
/// The maximum bytes of what is alike in devices.
const LONGEST_ALIKE: usize = 1 << 10;

/// The fields of a device that are remembered.
const SHARED: [&str; 2] = ["attributes", "capacity"];

/// The attributes, without their domains, that are one device's own.
const OWN: [&str; 19] = [
    "guid",
    "ifName",
    "index",
    "interfaceName",
    "ipv4",
    "ipv6",
    "mac",
    "macAddress",
    "minor",
    "numaNode",
    "parentIndex",
    "parentMinor",
    "parentUUID",
    "pciAddress",
    "pciBusID",
    "pcieRoot",
    "serial",
    "serialNumber",
    "uuid",
];

/// What the drivers of a Node offer.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Offers {
    /// The maximum number of volumes of each CSI driver that limits them; `None` if no CSINode was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<BTreeMap<String, u32>>,
    /// The devices of each driver of Dynamic Resource Allocation; `None` if no complete ResourceSlices were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<BTreeMap<String, Devices>>,
}

/// The devices of a driver.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Devices {
    /// Their number.
    pub count: u32,
    /// The number of the Node's pools that they are in.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub pools: u32,
    /// The numbers of those with the same attributes and capacity, which are `attributes` and `capacity` of a device in a
    /// ResourceSlice, as JSON, without those that are one device's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub alike: BTreeMap<String, u32>,
}

const fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Offers {
    /// Returns what a CSINode and the ResourceSlices of its Node offer, as far as each was read. What isn't as the API has
    /// it is skipped.
    pub fn of(csi_node: Option<&Value>, slices: Option<&[Value]>) -> Self {
        Self { volumes: csi_node.map(volumes), devices: slices.and_then(devices) }
    }

    /// Returns true if nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what both offer, of each the smaller number. What is known of one alone counts for both.
    pub fn merge(&self, other: &Self) -> Self {
        let devices = |a: &Devices, b: &Devices| Devices {
            count: a.count.min(b.count),
            pools: a.pools.min(b.pools),
            alike: both(&a.alike, &b.alike, |a, b| *a.min(b)),
        };
        Self {
            volumes: known(self.volumes.as_ref(), other.volumes.as_ref(), |a, b| both(a, b, |a, b| *a.min(b))),
            devices: known(self.devices.as_ref(), other.devices.as_ref(), |a, b| both(a, b, devices)),
        }
    }

    /// Returns it without what is alike in devices, which is long.
    pub(super) fn without_alike(mut self) -> Self {
        self.devices.iter_mut().flat_map(BTreeMap::values_mut).for_each(|devices| devices.alike.clear());
        self
    }

    /// Returns true if names and numbers are such as [`Offers::of`] returns.
    pub(super) fn is_valid(&self) -> bool {
        let volumes = || self.volumes.iter().flatten();
        let devices = || self.devices.iter().flatten();
        volumes().map(|(driver, _)| driver).chain(devices().map(|(driver, _)| driver)).all(|it| is_driver_name(it))
            && volumes().all(|(_, count)| i32::try_from(*count).is_ok())
            && devices().all(|(_, devices)| devices.is_valid())
    }
}

/// Returns the limits of a CSINode.
fn volumes(csi_node: &Value) -> BTreeMap<String, u32> {
    let drivers = csi_node["spec"]["drivers"].as_array().into_iter().flatten();
    let limit = |driver: &Value| {
        let count = driver["allocatable"]["count"].as_u64()?;
        Some((name(&driver["name"])?, u32::try_from(count).ok().filter(|count| i32::try_from(*count).is_ok())?))
    };
    drivers.filter_map(limit).take(MOST_DRIVERS).collect()
}

/// Returns the devices in the newest generation of each pool; `None` if a pool isn't complete. Devices that share counters
/// aren't remembered: to count each as a whole one would be too much.
fn devices(slices: &[Value]) -> Option<BTreeMap<String, Devices>> {
    let mut pools = BTreeMap::<(String, &str), Vec<&Value>>::new();
    for spec in slices.iter().map(|slice| &slice["spec"]) {
        let Some(driver) = name(&spec["driver"]) else { continue };
        pools.entry((driver, spec["pool"]["name"].as_str().unwrap_or_default())).or_default().push(spec);
    }
    let has = |value: &Value| value.as_array().is_some_and(|all| !all.is_empty());
    let mut drivers = BTreeMap::<String, Option<(u32, Vec<&Value>)>>::new();
    for ((driver, _), mut slices) in pools {
        let generation = |spec: &&Value| spec["pool"]["generation"].as_i64().unwrap_or_default();
        let newest = slices.iter().map(generation).max();
        slices.retain(|spec| Some(generation(spec)) == newest);
        let wanted = slices.iter().filter_map(|spec| spec["pool"]["resourceSliceCount"].as_u64()).max();
        if wanted.is_some_and(|wanted| wanted > slices.len() as u64) {
            return None;
        }
        let devices: Vec<_> = slices.iter().flat_map(|spec| spec["devices"].as_array().into_iter().flatten()).collect();
        let shares_counters = slices.iter().any(|spec| has(&spec["sharedCounters"]))
            || devices.iter().any(|device| has(&device["consumesCounters"]));
        let known = drivers.entry(driver).or_insert_with(|| Some((0, Vec::new())));
        match known {
            Some((pools, all)) if !shares_counters => {
                *pools += u32::from(!devices.is_empty());
                all.extend(devices);
            }
            Some(_) | None => *known = None,
        }
    }
    let of_driver = |(driver, found): (String, Option<(u32, Vec<&Value>)>)| {
        let (pools, devices) = found.filter(|(_, devices)| !devices.is_empty())?;
        Some((driver, Devices::of(pools, &devices)))
    };
    Some(drivers.into_iter().filter_map(of_driver).take(MOST_DRIVERS).collect())
}

impl Devices {
    fn of(pools: u32, devices: &[&Value]) -> Self {
        let mut alike = BTreeMap::new();
        for device in devices.iter().take(MOST_REMEMBERED as usize) {
            let text = shared(device).to_string();
            if text.len() <= LONGEST_ALIKE {
                *alike.entry(text).or_default() += 1;
            }
        }
        let count = u32::try_from(devices.len()).unwrap_or(MOST_REMEMBERED).min(MOST_REMEMBERED);
        Self { count, pools: pools.clamp(1, count), alike }
    }

    fn is_valid(&self) -> bool {
        let sum = self.alike.values().try_fold(0_u32, |sum, count| sum.checked_add(*count));
        self.count <= MOST_REMEMBERED
            && (1..=self.count).contains(&self.pools)
            && sum.is_some_and(|sum| sum <= self.count)
            && self.alike.keys().all(|text| is_shared(text))
    }
}

/// Returns what other devices of this type have too.
fn shared(device: &Value) -> Value {
    let mut shared = serde_json::Map::new();
    for field in SHARED {
        let Some(mut values) = device[field].as_object().cloned() else { continue };
        values.retain(|name, _| {
            let name = name.rsplit('/').next().unwrap_or_default();
            !OWN.iter().any(|own| own.eq_ignore_ascii_case(name))
        });
        if !values.is_empty() {
            shared.insert(field.to_owned(), values.into());
        }
    }
    shared.into()
}

/// Returns true for such a text as [`shared`] makes.
fn is_shared(text: &str) -> bool {
    let is_field = |(field, values): (&String, &Value)| SHARED.contains(&field.as_str()) && values.is_object();
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => fields.iter().all(is_field),
        Ok(_) | Err(_) => false,
    }
}

fn known<T: Clone>(a: Option<&T>, b: Option<&T>, of: impl Fn(&T, &T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(of(a, b)),
        (one, None) | (None, one) => one.cloned(),
    }
}

fn name(value: &Value) -> Option<String> {
    value.as_str().filter(|name| is_driver_name(name)).map(str::to_owned)
}

fn both<T>(a: &BTreeMap<String, T>, b: &BTreeMap<String, T>, of: impl Fn(&T, &T) -> T) -> BTreeMap<String, T> {
    a.iter().filter_map(|(key, a)| Some((key.clone(), of(a, b.get(key)?)))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::testing::{annotations, assert_names};

    fn annotated(values: &[(&str, &str)]) -> BTreeMap<ArcStr, ArcStr> {
        annotations(CAPACITY_PREFIX, values)
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
        assert_names(&problems, ProblemKind::Capacity, &[name, &format!("{value:?}"), rule, "ignored"]);
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
