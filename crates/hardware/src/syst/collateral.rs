// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Catalogues of formats, as senders' makers publish them (SyS-T collateral, XML), and texts of messages.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};

use super::printf::{FormatError, TEXT_BYTES_MAX, expand};
use super::{Body, Location, Message, Origin};

/// Why a catalogue cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollateralError {
    /// It is not XML.
    Xml(String),
    /// An attribute is not a number.
    Number(String),
    /// Elements are in elements, too deep.
    TooDeep,
    /// There is no `Client` in it.
    NoClient,
}

/// Elements that are in each other, at most: a reader of XML takes stack for each, and the catalogues of SyS-T have seven.
const DEPTH_MAX: usize = 64;

impl fmt::Display for CollateralError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollateralError::Xml(reason) => write!(f, "the collateral is not XML: {reason}"),
            CollateralError::Number(text) => write!(f, "'{text}' in the collateral is not a number"),
            CollateralError::TooDeep => {
                write!(f, "the collateral has more than {DEPTH_MAX} levels of elements")
            }
            CollateralError::NoClient => {
                f.write_str("it is no collateral of SyS-T: no element 'Client' is in it")
            }
        }
    }
}

impl core::error::Error for CollateralError {}

/// A number of which some bits name something, and the others are free.
#[derive(Clone, Debug)]
struct Masked<T> {
    id: T,
    mask: T,
    name: String,
}

#[derive(Clone, Debug)]
struct Format {
    text: String,
    file: Option<u32>,
    line: u32,
}

/// What a client's messages mean.
#[derive(Clone, Debug, Default)]
struct Client {
    name: String,
    guids: Vec<Masked<u128>>,
    modules: Vec<Masked<u64>>,
    files: BTreeMap<u64, String>,
    catalog32: BTreeMap<u64, Format>,
    catalog64: BTreeMap<u64, Format>,
    short32: Vec<Masked<u64>>,
    short64: Vec<Masked<u64>>,
    protocols: Vec<Masked<u64>>,
}

/// Catalogues of any number of clients.
#[derive(Clone, Debug, Default)]
pub struct Collateral {
    clients: Vec<Client>,
}

/// A message as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// What it says; as much as could be made of it when there is an error.
    pub text: String,
    /// Its type, with the protocol's name if the catalogue has one.
    pub kind: String,
    /// The sender's name, or its number.
    pub origin: String,
    /// `FILE:LINE` or an address; empty: it is not known.
    pub location: String,
    /// Why the text is not complete.
    pub error: Option<TextError>,
}

/// Why a text is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextError {
    /// The catalogue does not have its number.
    NotInCatalog,
    /// Format and arguments do not belong together.
    Format(FormatError),
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::NotInCatalog => f.write_str("its number is not in the collateral"),
            TextError::Format(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for TextError {}

impl Collateral {
    /// Adds a catalogue, the content of an XML file.
    ///
    /// # Errors
    /// When it is not one.
    pub fn add(&mut self, xml: &str) -> Result<(), CollateralError> {
        if depth(xml) > DEPTH_MAX {
            return Err(CollateralError::TooDeep);
        }
        let document =
            roxmltree::Document::parse(xml).map_err(|error| CollateralError::Xml(error.to_string()))?;
        let clients = document.descendants().filter(|node| node.tag_name().name() == "Client");
        let before = self.clients.len();
        for node in clients {
            self.clients.push(Client::read(node)?);
        }
        if self.clients.len() > before { Ok(()) } else { Err(CollateralError::NoClient) }
    }

    /// The text of a message.
    #[must_use]
    pub fn text(&self, message: &Message<'_>) -> Text {
        let senders = self.senders(message);
        let mut client = senders.first().copied();
        let (mut text, mut location, mut error) = (String::new(), String::new(), None);
        let outcome = match message.body {
            Body::Build { version, text: banner } => {
                let _ = write!(text, "0x{version:016x} {}", String::from_utf8_lossy(banner));
                Ok(())
            }
            Body::Short32(value) => self.short(&mut text, u64::from(value), 28),
            Body::Short64(value) => self.short(&mut text, value, 60),
            Body::String { text: bytes, .. } => {
                text.push_str(&String::from_utf8_lossy(bytes));
                Ok(())
            }
            Body::Printf { wide, format, arguments } => {
                expand(&mut text, format, arguments, wide).map_err(TextError::Format)
            }
            Body::Catalog { id, wide_id, wide, arguments } => {
                match senders.iter().find_map(|sender| sender.format(id, wide_id)) {
                    Some((sender, format)) => {
                        client = Some(sender);
                        location = sender.location(format);
                        expand(&mut text, format.text.as_bytes(), arguments, wide).map_err(TextError::Format)
                    }
                    None => not_in_catalog(&mut text, id, arguments),
                }
            }
            Body::Raw { bytes, .. } => {
                hexadecimal(&mut text, bytes);
                Ok(())
            }
            Body::Clock { value, hz, .. } => {
                let _ = write!(text, "{value} at {hz} Hz");
                Ok(())
            }
        };
        if let Err(reason) = outcome {
            error = Some(reason);
        }
        if let Some(sent) = message.location {
            location = client.map_or_else(|| Client::default().place(sent), |client| client.place(sent));
        }
        let origin = origin_name(client, message.origin);
        Text { text, kind: kind_name(client, &message.body), origin, location, error }
    }

    /// The clients that may have sent it, as there may be several catalogues of one. Those that say nothing of themselves may have any module.
    fn senders(&self, message: &Message<'_>) -> Vec<&Client> {
        let mut senders: Vec<&Client> = match message.origin {
            None => Vec::new(),
            Some(Origin::Guid(guid)) => {
                let guid = u128::from_be_bytes(guid);
                let has =
                    |client: &&Client| find(&client.guids, |id, mask| id & mask == guid & mask).is_some();
                return self.clients.iter().filter(has).collect();
            }
            Some(Origin::Module(module)) => {
                let module = u64::from(module);
                let has =
                    |client: &&Client| find(&client.modules, |id, mask| id & mask == module & mask).is_some();
                self.clients.iter().filter(has).collect()
            }
        };
        if senders.is_empty() {
            senders.extend(
                self.clients.iter().filter(|client| client.guids.is_empty() && client.modules.is_empty()),
            );
        }
        senders
    }

    /// Short messages do not say who sent them.
    fn short(&self, text: &mut String, value: u64, bits: u32) -> Result<(), TextError> {
        for client in &self.clients {
            let formats = if bits == 28 { &client.short32 } else { &client.short64 };
            if let Some(found) = find(formats, |id, mask| id & mask == value & mask) {
                let argument = value & !found.mask & ((1 << bits) - 1);
                return expand(text, found.name.as_bytes(), &argument.to_le_bytes(), false)
                    .map_err(TextError::Format);
            }
        }
        let _ = write!(text, "0x{value:x}");
        Err(TextError::NotInCatalog)
    }
}

/// How deep elements are in each other. Of what is no XML any number.
fn depth(xml: &str) -> usize {
    let (mut depth, mut deepest, mut rest) = (0_usize, 0, xml);
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        let skipped = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")];
        if let Some((_, end)) = skipped.into_iter().find(|(begin, _)| rest.starts_with(begin)) {
            rest = rest.find(end).map_or("", |at| &rest[at + end.len()..]);
            continue;
        }
        let mut quote = None;
        let end = rest.find(|c: char| {
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (Some(open), c) if open == c => quote = None,
                _ => {}
            }
            quote.is_none() && c == '>'
        });
        let (tag, behind) = rest.split_at(end.unwrap_or(rest.len()));
        match (tag.starts_with("</"), tag.ends_with('/')) {
            (true, _) => depth = depth.saturating_sub(1),
            (false, true) => deepest = deepest.max(depth + 1),
            (false, false) => {
                depth += 1;
                deepest = deepest.max(depth);
            }
        }
        rest = behind;
    }
    deepest
}

fn find<T: Copy>(all: &[Masked<T>], matches: impl Fn(T, T) -> bool) -> Option<&Masked<T>> {
    all.iter().find(|one| matches(one.id, one.mask))
}

fn not_in_catalog(text: &mut String, id: u64, arguments: &[u8]) -> Result<(), TextError> {
    let _ = write!(text, "0x{id:x} ");
    hexadecimal(text, arguments);
    Err(TextError::NotInCatalog)
}

fn hexadecimal(text: &mut String, bytes: &[u8]) {
    for byte in bytes.iter().take(TEXT_BYTES_MAX / 2) {
        let _ = write!(text, "{byte:02x}");
    }
}

fn origin_name(client: Option<&Client>, origin: Option<Origin>) -> String {
    match (client, origin) {
        (_, None) => String::new(),
        (Some(client), Some(Origin::Guid(_))) => client.name.clone(),
        (None, Some(Origin::Guid(guid))) => {
            let mut text = String::new();
            hexadecimal(&mut text, &guid);
            text
        }
        (client, Some(Origin::Module(module))) => {
            let id = u64::from(module);
            let named = client.and_then(|client| find(&client.modules, |one, mask| one & mask == id & mask));
            named.map_or_else(|| module.to_string(), |named| named.name.clone())
        }
    }
}

fn kind_name(client: Option<&Client>, body: &Body<'_>) -> String {
    let Body::Raw { protocol, .. } = *body else { return body.name().to_string() };
    let id = u64::from(protocol);
    let found = client.and_then(|client| find(&client.protocols, |one, mask| one & mask == id & mask));
    let mut name = "RAW:".to_string();
    match found {
        // The name is a format of the number.
        Some(found)
            if expand(&mut name, found.name.as_bytes(), &u32::from(protocol).to_le_bytes(), false)
                .is_ok() => {}
        _ => name = protocol_number(protocol),
    }
    name
}

fn protocol_number(protocol: u8) -> String {
    let mut name = String::new();
    let _ = write!(name, "RAW:{protocol}");
    name
}

impl Client {
    fn read(node: roxmltree::Node<'_, '_>) -> Result<Self, CollateralError> {
        let mut client =
            Client { name: node.attribute("Name").unwrap_or("").to_string(), ..Client::default() };
        for group in node.children() {
            let named =
                |tag: &'static str| group.children().filter(move |child| child.tag_name().name() == tag);
            match group.tag_name().name() {
                "Guids" => client.guids = named("Guid").map(guid).collect::<Result<_, _>>()?,
                "Modules" => client.modules = named("Module").map(masked).collect::<Result<_, _>>()?,
                "Short32" => client.short32 = named("Format").map(masked).collect::<Result<_, _>>()?,
                "Short64" => client.short64 = named("Format").map(masked).collect::<Result<_, _>>()?,
                "Write" => client.protocols = named("Protocol").map(masked).collect::<Result<_, _>>()?,
                "SourceFiles" => {
                    for file in named("File") {
                        client.files.insert(attribute(file, "ID")?.unwrap_or(0), content(file));
                    }
                }
                "Catalog32" => client.catalog32 = named("Format").map(format_of).collect::<Result<_, _>>()?,
                "Catalog64" => client.catalog64 = named("Format").map(format_of).collect::<Result<_, _>>()?,
                _ => {}
            }
        }
        Ok(client)
    }

    fn format(&self, id: u64, wide_id: bool) -> Option<(&Client, &Format)> {
        let catalog = if wide_id { &self.catalog64 } else { &self.catalog32 };
        catalog.get(&id).map(|format| (self, format))
    }

    fn location(&self, format: &Format) -> String {
        match format.file {
            Some(file) => self.place(Location::Line { file, line: format.line }),
            None => String::new(),
        }
    }

    fn place(&self, location: Location) -> String {
        let mut place = String::new();
        let _ = match location {
            Location::Address(address) => write!(place, "0x{address:x}"),
            Location::Line { file, line } => match self.files.get(&u64::from(file)) {
                Some(name) => write!(place, "{name}:{line}"),
                None => write!(place, "{file}:{line}"),
            },
        };
        place
    }
}

/// The text of an element, CDATA or not.
fn content(node: roxmltree::Node<'_, '_>) -> String {
    node.descendants().filter(roxmltree::Node::is_text).filter_map(|text| text.text()).collect()
}

fn parsed(text: &str) -> Result<u64, CollateralError> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let parsed = hexadecimal.map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok());
    parsed.ok_or_else(|| CollateralError::Number(text.to_string()))
}

fn attribute(node: roxmltree::Node<'_, '_>, name: &str) -> Result<Option<u64>, CollateralError> {
    node.attribute(name).map(|text| parsed(text.trim())).transpose()
}

fn masked(node: roxmltree::Node<'_, '_>) -> Result<Masked<u64>, CollateralError> {
    let id = attribute(node, "ID")?.unwrap_or(0);
    let mask = attribute(node, "Mask")?.unwrap_or(u64::MAX);
    Ok(Masked { id, mask, name: content(node) })
}

fn format_of(node: roxmltree::Node<'_, '_>) -> Result<(u64, Format), CollateralError> {
    let id = attribute(node, "ID")?.unwrap_or(0);
    let file = attribute(node, "File")?.map(|file| file as u32);
    let line = attribute(node, "Line")?.unwrap_or(0) as u32;
    Ok((id, Format { text: content(node), file, line }))
}

fn guid(node: roxmltree::Node<'_, '_>) -> Result<Masked<u128>, CollateralError> {
    let of = |name: &str| node.attribute(name).map(guid_number).transpose();
    Ok(Masked { id: of("ID")?.unwrap_or(0), mask: of("Mask")?.unwrap_or(u128::MAX), name: content(node) })
}

/// `{494E5443-8A9C-4014-A65A-2F36A36D96E4}`
fn guid_number(text: &str) -> Result<u128, CollateralError> {
    let digits: String = text.chars().filter(|char| !matches!(char, '{' | '}' | '-' | ' ')).collect();
    u128::from_str_radix(&digits, 16).map_err(|_| CollateralError::Number(text.to_string()))
}
