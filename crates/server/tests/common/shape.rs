//! Whether an answer is as the OpenAPI document describes it: nothing missing, and nothing it does not know.

use axum::http::{Method, StatusCode};
use serde_json::Value;
use std::sync::LazyLock;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(tenure_server::document()).expect("JSON"));

/// Panics if a documented answer looks otherwise. What is not documented is for other tests.
pub fn check(method: &Method, path: &str, status: StatusCode, body: &Value) {
    let paths = DOCUMENT["paths"].as_object().expect("paths");
    let Some((_, item)) = paths.iter().find(|(template, _)| is_like(template, path)) else { return };
    let responses = &item[method.as_str().to_lowercase()]["responses"][status.as_str()];
    let Some(content) = responses["content"].as_object() else { return };
    let schema = &content.values().next().expect("a content")["schema"];
    if let Err(why) = fits(schema, body, "") {
        panic!("{method} {path} {status}: {why}\n{body}");
    }
}

fn is_like(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == found || wanted.starts_with('{') => {}
            _ => return false,
        }
    }
}

fn fits(schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().expect("a name");
        return fits(&DOCUMENT["components"]["schemas"][name], value, place);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let tried: Vec<String> =
            choices.iter().filter_map(|choice| fits(choice, value, place).err()).collect();
        return if tried.len() < choices.len() { Ok(()) } else { Err(tried.join("; ")) };
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let whole = parts.iter().map(resolved).reduce(merged).expect("a part");
        return fits(&whole, value, place);
    }
    if schema["type"].is_null() {
        return Ok(());
    }
    let types = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
    if !types.iter().any(|name| is_a(name.as_str().unwrap_or_default(), value)) {
        return Err(format!("{place} is {value}, not {}", schema["type"]));
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        fits(&schema["items"], item, &format!("{place}[{number}]"))?;
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{place}.{name} is missing"));
        }
    }
    for (name, field) in fields {
        let place = format!("{place}.{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Null) if schema["properties"].is_object() => {
                return Err(format!("{place} is not documented"));
            }
            (Value::Null, others) => fits(others, field, &place)?,
            (known, _) => fits(known, field, &place)?,
        }
    }
    Ok(())
}

fn resolved(schema: &Value) -> Value {
    let name = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
    name.map_or(schema, |name| &DOCUMENT["components"]["schemas"][name]).clone()
}

fn merged(mut one: Value, other: Value) -> Value {
    for (name, schema) in other["properties"].as_object().into_iter().flatten() {
        one["properties"][name] = schema.clone();
    }
    if let (Some(all), Some(more)) = (one["required"].as_array_mut(), other["required"].as_array()) {
        all.extend(more.iter().cloned());
    }
    one
}

fn is_a(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("no such type: {other}"),
    }
}
