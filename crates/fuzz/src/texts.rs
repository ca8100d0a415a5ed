//! Fuzzes parsers of single texts: parsed values print as the same text, and compare by value.

use std::str;

use rules::{
    GroupId, PlaceholderRef, Price, Quantity, Taint, provider_id as ids, quantity::Format, taints, template_node_groups,
};

/// Parses two quantities, one per line.
pub fn quantity(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (left, right) = text.split_once('\n').unwrap_or((text, "0"));
    if let Ok(price) = left.parse::<Price>() {
        assert_eq!(price.to_string().parse(), Ok(price), "a price is read as it is printed");
    }
    let (Ok(left), Ok(right)) = (left.parse::<Quantity>(), right.parse::<Quantity>()) else { return };
    // A sum may exceed the range of binary notation, which ends at the largest i64.
    let largest = Quantity::from_units(i64::MAX);
    let sums =
        [left + right, left - right].into_iter().filter(|sum| *sum <= largest && Quantity::ZERO - *sum <= largest);
    for quantity in [left, right, Quantity::ZERO - left].into_iter().chain(sums) {
        let printed = quantity.to_string();
        let again: Quantity = printed.parse().expect("a quantity is read as it is printed");
        assert_eq!(again, quantity, "{printed}");
        // Binary text without a suffix is parsed as decimal, which may print it shorter: 2000 is 2k.
        let became_decimal = quantity.format() == Format::BinarySi && again.format() == Format::DecimalSi;
        assert!(became_decimal || again.to_string() == printed, "{printed} is printed as {again} next");
        assert_eq!(again.to_string().parse(), Ok(again), "{printed}");
        assert!(quantity.to_f64().is_finite());
    }
    assert_eq!(left.cmp(&right), right.cmp(&left).reverse());
    assert_eq!(left < right, right - left > Quantity::ZERO);
    assert!(left > right || (left.value() <= right.value() && left.milli_value() <= right.milli_value()));
}

/// Parses a list of taints in the annotation's form.
pub fn taint(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (found, problems) = taints::parse("taints", text);
    let entries = text.split(',').filter(|entry| !entry.trim().is_empty()).count();
    assert!(found.len() + problems.len() <= entries);
    for (place, taint) in found.iter().enumerate() {
        assert_eq!(taint.to_string().parse::<Taint>().as_ref(), Ok(taint));
        assert!(found[..place].iter().all(|other| !taint.replaces(other)), "{taint} stands there twice");
    }
    let printed = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    assert_eq!(taints::parse("taints", &printed), (found, Vec::new()));
}

/// Parses a provider id, or an id that replaces one.
pub fn provider_id(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Some(tail) = ids::tail(text) {
        assert!(!tail.is_empty() && !tail.contains('/') && text.ends_with(tail));
    }
    if let Some(id) = GroupId::parse(text) {
        assert_eq!(id.to_string(), text);
    }
    match PlaceholderRef::parse(text) {
        Some(PlaceholderRef::Machine(key)) => {
            assert!(text.ends_with(&format!("-machine-{}_{}", key.namespace, key.name)));
        }
        Some(PlaceholderRef::Replica(group)) => {
            let stem = format!("replica-{}-{}_{}-", group.kind, group.key.namespace, group.key.name);
            let id = text.strip_prefix("new-").unwrap_or(text);
            assert!(id.strip_prefix(&stem).is_some_and(|index| index.parse::<u128>().is_ok() || index.len() > 38));
        }
        None => {}
    }
    let candidates: Vec<_> = template_node_groups(text).collect();
    assert!(candidates.len() <= 253);
    for id in candidates {
        assert!(text.starts_with(&format!("template-node-for-{id}-")));
    }
}
