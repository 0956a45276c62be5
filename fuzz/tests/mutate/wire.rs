//! Mutations of protobuf messages that keep the enclosing lengths valid.

use prost::encoding::{decode_varint, encode_varint};
use proxyless_sans_io::Rng;

/// One field, including its key.
#[derive(Clone)]
struct Field {
    key: u64,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Varint(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
}

/// The message with one change, somewhere in it; `None` if it is not a message.
pub(crate) fn mutated(data: &[u8], tokens: &[Vec<u8>], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut fields = parse(data)?;
    if fields.is_empty() {
        return None;
    }
    let at = rng.below(fields.len() as u64) as usize;
    // Descends most of the time: the interesting fields are deep.
    if let Value::Bytes(inner) = &mut fields[at].value
        && rng.below(5) != 0
        && let Some(changed) = mutated(inner, tokens, rng)
    {
        *inner = changed;
        return Some(write(&fields));
    }
    match rng.below(6) {
        0 => drop(fields.remove(at)),
        1 => fields.insert(at, fields[at].clone()),
        2 => {
            let other = rng.below(fields.len() as u64) as usize;
            fields.swap(at, other);
        }
        3 => fields[at].key = (1 + rng.below(40)) << 3 | fields[at].key & 7,
        4 if !tokens.is_empty() => {
            let token = tokens[rng.below(tokens.len() as u64) as usize].clone();
            // A token of the dictionary in the place of a value.
            fields[at] = Field { key: fields[at].key & !7 | 2, value: Value::Bytes(token) };
        }
        _ => change(&mut fields[at].value, rng),
    }
    Some(write(&fields))
}

fn change(value: &mut Value, rng: &mut Rng) {
    match value {
        Value::Varint(number) => {
            *number = match rng.below(5) {
                0 => rng.below(20),
                1 => u64::MAX - rng.below(2),
                2 => (1 << rng.below(64)) - rng.below(2),
                3 => number.wrapping_add(1),
                _ => number.wrapping_sub(1),
            }
        }
        Value::Fixed(bytes) | Value::Bytes(bytes) => match rng.below(4) {
            0 => bytes.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8),
            1 if matches!(bytes.len(), 4 | 8) => bytes.fill([0, 0x7f, 0xff][rng.below(3) as usize]),
            _ if bytes.is_empty() => {}
            _ => {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] =
                    if rng.below(2) == 0 { rng.next_u64() as u8 } else { bytes[at] ^ 1 << rng.below(8) };
            }
        },
    }
    if let Value::Bytes(bytes) = value {
        match rng.below(6) {
            0 => bytes.clear(),
            1 => bytes.extend(bytes.clone()),
            _ => {}
        }
    }
}

fn parse(mut data: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !data.is_empty() {
        let key = decode_varint(&mut data).ok()?;
        let value = match key & 7 {
            0 => Value::Varint(decode_varint(&mut data).ok()?),
            1 => Value::Fixed(take(&mut data, 8)?),
            2 => {
                let length = decode_varint(&mut data).ok()?.try_into().ok()?;
                Value::Bytes(take(&mut data, length)?)
            }
            5 => Value::Fixed(take(&mut data, 4)?),
            _ => return None,
        };
        if key >> 3 == 0 {
            return None;
        }
        fields.push(Field { key, value });
    }
    Some(fields)
}

fn take(data: &mut &[u8], length: usize) -> Option<Vec<u8>> {
    let (taken, rest) = data.split_at_checked(length)?;
    *data = rest;
    Some(taken.to_vec())
}

fn write(fields: &[Field]) -> Vec<u8> {
    let mut data = Vec::new();
    for Field { key, value } in fields {
        encode_varint(*key, &mut data);
        match value {
            Value::Varint(number) => encode_varint(*number, &mut data),
            Value::Fixed(bytes) => data.extend(bytes),
            Value::Bytes(bytes) => {
                encode_varint(bytes.len() as u64, &mut data);
                data.extend(bytes);
            }
        }
    }
    data
}
