//! Mutations of inputs.

use std::fs;

use proxyless_sans_io::Rng;

use crate::support::path;

mod wire;

/// The longest mutated input.
const LONGEST: usize = 4096;

/// The tokens of a dictionary, in libFuzzer's format.
pub(crate) fn dictionary(file: &str) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(path("dictionaries").join(file)).expect("a dictionary");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(token).collect()
}

/// `name="token"` or `"token"`, with the escapes `\\`, `\"` and `\xAB`.
fn token(line: &str) -> Vec<u8> {
    let quoted = line.find('"').and_then(|at| line[at + 1..].strip_suffix('"'));
    let mut chars = quoted.unwrap_or_else(|| panic!("not a dictionary line: {line}")).chars();
    let mut bytes = Vec::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('x') => {
                    let digits: String = chars.by_ref().take(2).collect();
                    bytes.push(
                        u8::from_str_radix(&digits, 16).unwrap_or_else(|_| panic!("bad escape: {line}")),
                    );
                }
                Some(c) => bytes.extend(c.to_string().bytes()),
                None => panic!("bad escape: {line}"),
            },
            c => bytes.extend(c.to_string().bytes()),
        }
    }
    bytes
}

/// One input, changed a few times.
pub(crate) fn mutated(seeds: &[(String, Vec<u8>)], tokens: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let seed = |rng: &mut Rng| seeds[rng.below(seeds.len() as u64) as usize].1.clone();
    let mut data = seed(rng);
    for _ in 0..=rng.below(5) {
        let at = rng.below(data.len() as u64 + 1) as usize;
        match rng.below(12) {
            // As a protobuf message, with valid lengths.
            0..=4 => {
                // Some targets take a byte before the message.
                let skip = (rng.below(4) == 0 && !data.is_empty()) as usize;
                if let Some(changed) = wire::mutated(&data[skip..], tokens, rng) {
                    data.truncate(skip);
                    data.extend(changed);
                }
            }
            5 if !tokens.is_empty() => {
                let token = &tokens[rng.below(tokens.len() as u64) as usize];
                let end = if rng.below(2) == 0 { at } else { (at + token.len()).min(data.len()) };
                data.splice(at..end, token.iter().copied());
            }
            6 => {
                let other = seed(rng);
                let from = rng.below(other.len() as u64 + 1) as usize;
                data.truncate(at);
                data.extend(&other[from..]);
            }
            _ => bytes(&mut data, at, rng),
        }
    }
    data.truncate(LONGEST);
    data
}

/// A change that ignores the format.
fn bytes(data: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let length = (1 + rng.below(8) as usize).min(data.len() - at);
    match rng.below(6) {
        0 => data.truncate(at),
        1 => drop(data.drain(at..at + length)),
        2 => {
            let copy = data[at..at + length].to_vec();
            data.splice(at..at, copy);
        }
        3 => {
            let new: Vec<u8> = (0..=rng.below(40)).map(|_| rng.next_u64() as u8).collect();
            data.splice(at..at, new);
        }
        _ => {
            let byte = match rng.below(3) {
                0 => [0, 1, 0x7f, 0x80, 0xff, b'%', b'"'][rng.below(7) as usize],
                1 => data.get(at).copied().unwrap_or(0) ^ 1 << rng.below(8),
                _ => rng.next_u64() as u8,
            };
            if let Some(place) = data.get_mut(at) {
                *place = byte;
            }
        }
    }
}
