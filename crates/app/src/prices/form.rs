//! The format of a price file: YAML, parsed into the price list of the rules. Any other content is an error with its
//! position; the parser must never guess.

use std::{collections::BTreeMap, fmt};

use arcstr::ArcStr;
use rules::{
    LabelSelector,
    price::{Price, PriceList, PriceRule, Rates, Tariff},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "instanceTypes, selectors, resources")]
struct FileForm {
    #[serde(default)]
    selectors: Vec<SelectorForm>,
    #[serde(default)]
    instance_types: InstanceTypes,
    resources: Option<RatesForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "selector with pricePerHour or resources")]
struct SelectorForm {
    selector: String,
    price_per_hour: Option<PriceForm>,
    resources: Option<RatesForm>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, expecting = "cpu, memory and gpu")]
struct RatesForm {
    cpu: PriceForm,
    memory: PriceForm,
    gpu: Option<PriceForm>,
}

#[derive(Clone, Copy)]
struct PriceForm(Price);

#[derive(Default)]
struct InstanceTypes(BTreeMap<ArcStr, Price>);

/// Parses the prices of a file.
///
/// # Errors
/// If the text isn't a price list. The error gives the defect and its position.
pub(super) fn parse(text: &str) -> Result<PriceList, String> {
    let form: Option<FileForm> = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    let form = form.ok_or_else(nothing)?;
    let selectors = form.selectors.into_iter().map(SelectorForm::rule).collect::<Result<_, _>>()?;
    let resources = form.resources.map(RatesForm::rates);
    let list = PriceList { selectors, instance_types: form.instance_types.0, resources };
    if list.is_empty() { Err(nothing()) } else { Ok(list) }
}

fn nothing() -> String {
    "it has no prices: give instanceTypes, selectors or resources; for no prices at all leave out --prices".to_owned()
}

impl SelectorForm {
    fn rule(self) -> Result<PriceRule, String> {
        let text = self.selector;
        let wrong = |reason: &dyn fmt::Display| format!("selectors: selector {text:?}: {reason}");
        let parsed: LabelSelector = text.parse().map_err(|error| wrong(&error))?;
        let tariff = match (self.price_per_hour, self.resources) {
            (Some(price), None) => Tariff::Whole(price.0),
            (None, Some(rates)) => Tariff::Resources(rates.rates()),
            (Some(_), Some(_)) => return Err(wrong(&"it has pricePerHour and resources: give one of them")),
            (None, None) => return Err(wrong(&"it has no price: give pricePerHour or resources")),
        };
        Ok(PriceRule { selector: parsed.into_selector(), tariff, text: text.into() })
    }
}

impl RatesForm {
    fn rates(self) -> Rates {
        Rates { cpu: self.cpu.0, memory: self.memory.0, gpu: self.gpu.map(|gpu| gpu.0) }
    }
}

impl<'de> Deserialize<'de> for PriceForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_f64(PriceVisitor).map(Self)
    }
}

struct PriceVisitor;

impl Visitor<'_> for PriceVisitor {
    type Value = Price;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a price per hour, a number such as 0.096 without quotes")
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Price, E> {
        Price::try_from(number).map_err(|error| E::custom(format_args!("{number}: {error}")))
    }

    #[allow(clippy::cast_precision_loss, reason = "no price has so many digits")]
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Price, E> {
        self.visit_f64(number as f64)
    }

    #[allow(clippy::cast_precision_loss, reason = "no price has so many digits")]
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Price, E> {
        self.visit_f64(number as f64)
    }
}

/// Deserializes a map and rejects a repeated key, since the choice between its prices would be arbitrary.
impl<'de> Deserialize<'de> for InstanceTypes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(InstanceTypesVisitor).map(Self)
    }
}

struct InstanceTypesVisitor;

impl<'de> Visitor<'de> for InstanceTypesVisitor {
    type Value = BTreeMap<ArcStr, Price>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("prices by instance type, such as m5.large: 0.096")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut prices = BTreeMap::new();
        while let Some(instance_type) = map.next_key::<String>()? {
            if prices.contains_key(instance_type.as_str()) {
                return Err(A::Error::custom(format_args!("instance type {instance_type:?} stands there twice")));
            }
            let PriceForm(price) = map.next_value()?;
            prices.insert(instance_type.into(), price);
        }
        Ok(prices)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[test]
    fn every_part_of_the_form_is_read() {
        let list = parse(
            "selectors:\n\
             - {selector: 'lifecycle in (spot, preempted)', pricePerHour: 0.03}\n\
             - {selector: kubernetes.io/arch=arm64, resources: {cpu: 0.02, memory: 0.002, gpu: 1}}\n\
             instanceTypes: {m5.large: 0.096, m5.xlarge: 1}\n\
             resources: {cpu: 0.04, memory: 0.005}\n",
        )
        .unwrap();
        let price = |number: f64| Price::try_from(number).unwrap();
        assert_eq!(
            list.instance_types,
            BTreeMap::from([("m5.large".into(), price(0.096)), ("m5.xlarge".into(), price(1.0))])
        );
        assert_eq!(list.resources, Some(Rates { cpu: price(0.04), memory: price(0.005), gpu: None }));
        let [spot, arm] = list.selectors.as_slice() else { panic!("{list:?}") };
        assert_eq!((spot.text.as_str(), spot.tariff), ("lifecycle in (spot, preempted)", Tariff::Whole(price(0.03))));
        let rates = Rates { cpu: price(0.02), memory: price(0.002), gpu: Some(price(1.0)) };
        assert_eq!((arm.text.as_str(), arm.tariff), ("kubernetes.io/arch=arm64", Tariff::Resources(rates)));
        assert_eq!(arm.selector.to_string(), "kubernetes.io/arch=arm64");
    }

    #[rstest]
    #[case::empty("", &["no prices", "--prices"])]
    #[case::a_comment_alone("# prices\n", &["no prices"])]
    #[case::no_section("{}", &["no prices"])]
    #[case::empty_sections("selectors: []\ninstanceTypes: {}\n", &["no prices"])]
    #[case::no_mapping("- 1\n", &["expected instanceTypes, selectors, resources"])]
    #[case::no_yaml("resources: {cpu: 1\n", &["line 2"])]
    #[case::two_documents("resources: {cpu: 1, memory: 1}\n---\nresources: {cpu: 1, memory: 1}\n", &["more than one document"])]
    #[case::an_unknown_section("instance-types: {a: 1}\n", &["unknown field `instance-types`", "`instanceTypes`"])]
    #[case::an_unknown_rate("resources: {cpu: 1, memory: 1, disk: 1}\n", &["resources", "`disk`", "line 1"])]
    #[case::a_missing_rate("instanceTypes: {a: 1}\nresources:\n  cpu: 1\n", &["missing field `memory`", "line 3"])]
    #[case::a_negative_price("instanceTypes:\n  a: 1\n  b: -0.5\n", &["instanceTypes.b", "-0.5", "must not be negative", "line 3"])]
    #[case::a_price_of_whole_numbers("instanceTypes:\n  a: -1\n", &["instanceTypes.a", "must not be negative"])]
    #[case::an_endless_price("instanceTypes:\n  a: .inf\n", &["instanceTypes.a", "finite"])]
    #[case::no_number("instanceTypes:\n  a: .nan\n", &["instanceTypes.a", "finite"])]
    #[case::too_much("resources:\n  cpu: 1e10\n  memory: 1\n", &["resources.cpu", "must not be more than", "line 2"])]
    #[case::a_text("instanceTypes:\n  a: '0.1'\n", &["instanceTypes.a", "without quotes", "line 2"])]
    #[case::no_value("instanceTypes:\n  a:\n", &["instanceTypes.a", "number such as 0.096"])]
    #[case::twice("instanceTypes:\n  a: 1\n  a: 2\n", &["instanceTypes", "\"a\" stands there twice", "line 2"])]
    #[case::a_selector_without_a_price("selectors:\n- selector: a=b\n", &["selector \"a=b\"", "give pricePerHour or resources"])]
    #[case::a_selector_with_two(
        "selectors:\n- {selector: a=b, pricePerHour: 1, resources: {cpu: 1, memory: 1}}\n",
        &["selector \"a=b\"", "give one of them"]
    )]
    #[case::no_selector("selectors:\n- {selector: 'a==b==c', pricePerHour: 1}\n", &["selector \"a==b==c\"", "no label value"])]
    #[case::a_selector_of_all("selectors:\n- {selector: '', pricePerHour: 1}\n", &["selector \"\"", "none of key"])]
    #[case::a_missing_selector("selectors:\n- {pricePerHour: 1}\n", &["missing field `selector`", "line 2"])]
    fn anything_else_is_an_error_that_names_its_place(#[case] text: &str, #[case] parts: &[&str]) {
        let error = parse(text).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{part:?} isn't in {error:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), near in "(instanceTypes|resources|selectors): ?[-{\\[]?[a-z]{0,3}: ?[-.0-9e]{0,6}[}\\]]?\n?") {
            let _ = parse(&text);
            let _ = parse(&near);
        }
    }
}
