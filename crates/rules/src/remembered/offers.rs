//! What the drivers of a Node offer beyond its resources: volumes, by its CSINode, and devices, by its ResourceSlices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::drivers::is_driver_name;

/// The maximum number of drivers of each kind.
const MOST_DRIVERS: usize = 32;
/// The maximum number of devices of a driver.
const MOST_DEVICES: u32 = 4096;
/// The maximum bytes of what is alike in devices.
const LONGEST_ALIKE: usize = 1 << 10;

/// The attributes, without their domains, that are one device's own.
const OWN: [&str; 16] = [
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
    "uuid",
];

/// What the drivers of a Node offer.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Offers {
    /// The maximum number of volumes of each CSI driver that limits them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, u32>,
    /// The devices of each driver of Dynamic Resource Allocation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, Devices>,
}

/// The devices of a driver.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Devices {
    /// Their number.
    pub count: u32,
    /// The numbers of those with the same attributes and capacity, which are `attributes` and `capacity` of a device in a
    /// ResourceSlice, as JSON, without those that are one device's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub alike: BTreeMap<String, u32>,
}

impl Offers {
    /// Returns what a CSINode and the ResourceSlices of its Node offer. What isn't as the API has it is skipped.
    #[must_use]
    pub fn of(csi_node: &Value, slices: &[Value]) -> Self {
        let drivers = csi_node["spec"]["drivers"].as_array().into_iter().flatten();
        let limit = |driver: &Value| {
            let count = driver["allocatable"]["count"].as_u64()?;
            Some((name(&driver["name"])?, u32::try_from(count).ok().filter(|count| i32::try_from(*count).is_ok())?))
        };
        let mut by_driver = BTreeMap::<String, Vec<&Value>>::new();
        for slice in slices {
            let Some(driver) = name(&slice["spec"]["driver"]) else { continue };
            let devices = slice["spec"]["devices"].as_array().into_iter().flatten();
            by_driver.entry(driver).or_default().extend(devices);
        }
        let devices = by_driver.into_iter().map(|(driver, all)| (driver, Devices::of(&all)));
        Self {
            volumes: drivers.filter_map(limit).take(MOST_DRIVERS).collect(),
            devices: devices.filter(|(_, devices)| devices.count > 0).take(MOST_DRIVERS).collect(),
        }
    }

    /// Returns what both offer, of each the smaller number.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let devices = both(&self.devices, &other.devices, |a, b| Devices {
            count: a.count.min(b.count),
            alike: both(&a.alike, &b.alike, |a, b| *a.min(b)),
        });
        Self { volumes: both(&self.volumes, &other.volumes, |a, b| *a.min(b)), devices }
    }

    /// Returns it without what is alike in devices, which is long.
    pub(super) fn without_alike(mut self) -> Self {
        self.devices.values_mut().for_each(|devices| devices.alike.clear());
        self
    }

    /// Returns true if names and numbers are such as [`Offers::of`] returns.
    pub(super) fn is_valid(&self) -> bool {
        let is_sum = |devices: &Devices| {
            devices.count <= MOST_DEVICES
                && devices.alike.values().try_fold(0_u32, |sum, count| sum.checked_add(*count)) <= Some(devices.count)
        };
        self.volumes.keys().chain(self.devices.keys()).all(|driver| is_driver_name(driver))
            && self.volumes.values().all(|count| i32::try_from(*count).is_ok())
            && self.devices.values().all(is_sum)
    }
}

impl Devices {
    fn of(devices: &[&Value]) -> Self {
        let mut alike = BTreeMap::new();
        for device in devices.iter().take(MOST_DEVICES as usize) {
            let text = shared(device).to_string();
            if text.len() <= LONGEST_ALIKE {
                *alike.entry(text).or_default() += 1;
            }
        }
        Self { count: u32::try_from(devices.len()).unwrap_or(MOST_DEVICES).min(MOST_DEVICES), alike }
    }
}

/// Returns what other devices of this type have too.
fn shared(device: &Value) -> Value {
    let mut shared = serde_json::Map::new();
    for field in ["attributes", "capacity"] {
        let Some(mut values) = device[field].as_object().cloned() else { continue };
        values.retain(|name, _| !OWN.contains(&name.rsplit('/').next().unwrap_or_default()));
        if !values.is_empty() {
            shared.insert(field.to_owned(), values.into());
        }
    }
    shared.into()
}

fn name(value: &Value) -> Option<String> {
    value.as_str().filter(|name| is_driver_name(name)).map(str::to_owned)
}

fn both<T>(a: &BTreeMap<String, T>, b: &BTreeMap<String, T>, of: impl Fn(&T, &T) -> T) -> BTreeMap<String, T> {
    a.iter().filter_map(|(key, a)| Some((key.clone(), of(a, b.get(key)?)))).collect()
}
