#!/usr/bin/env bash
# Optional: installs free Latin fonts on Debian or Ubuntu (needs root), so that the synthetic training lines vary.
# Packages that this release does not have are skipped. Usage: sudo scripts/install_fonts.sh
set -euo pipefail

if [[ $(id -u) -ne 0 ]]; then
  echo "install_fonts.sh: needs root; run it with sudo" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null; then
  echo "install_fonts.sh: apt-get not found; install fonts with your own package manager instead" >&2
  exit 1
fi

packages=(
  fontconfig
  # text families of office suites and browsers, and free copies of their metrics
  fonts-dejavu fonts-dejavu-extra fonts-liberation fonts-liberation2 fonts-croscore
  fonts-crosextra-carlito fonts-crosextra-caladea fonts-freefont-otf fonts-urw-base35
  # TeX
  fonts-lmodern fonts-cmu fonts-texgyre fonts-stix
  # sans
  fonts-open-sans fonts-lato fonts-roboto-unhinted fonts-roboto-slab fonts-inter fonts-cabin fonts-cantarell
  fonts-karla fonts-quattrocento fonts-paratype fonts-b612 fonts-clear-sans fonts-play fonts-dosis
  fonts-quicksand fonts-manrope fonts-go fonts-sora fonts-national-park fonts-yanone-kaffeesatz
  fonts-tuffy fonts-oxygen fonts-comfortaa fonts-jura fonts-tiresias fonts-opendin fonts-noto-mono
  fonts-adf-accanthis fonts-adf-gillius fonts-adf-ikarius fonts-adf-irianis fonts-adf-libris
  fonts-adf-mekanus fonts-adf-solothurn fonts-adf-switzera fonts-adf-tribun fonts-adf-universalis
  fonts-adf-verana
  # serif
  fonts-linuxlibertine fonts-ebgaramond fonts-ebgaramond-extra fonts-gfs-artemisia fonts-gfs-didot
  fonts-gfs-bodoni-classic fonts-gfs-neohellenic fonts-adf-baskervald fonts-adf-berenis
  fonts-adf-romande fonts-sil-andika fonts-sil-charis fonts-sil-doulos fonts-sil-gentiumplus
  fonts-sil-gentium-basic fonts-junicode fonts-cardo fonts-oldstandard fonts-vollkorn
  fonts-yrsa-rasa fonts-goudybookletter fonts-lindenhill fonts-prociono fonts-essays1743 fonts-arapey
  fonts-averia-serif-gwf fonts-averia-sans-gwf fonts-fanwood fonts-elstob fonts-joscelyn
  # monospace
  fonts-inconsolata fonts-hack fonts-firacode fonts-jetbrains-mono fonts-anonymous-pro
  fonts-mononoki fonts-courier-prime fonts-agave fonts-fantasque-sans fonts-monoid fonts-league-mono
  fonts-gnutypewriter fonts-ocr-b fonts-3270
  # a few display and handwriting faces
  fonts-comic-neue fonts-dancingscript fonts-lobstertwo fonts-dkg-handwriting fonts-humor-sans
)

apt-get update -qq
available=()
for package in "${packages[@]}"; do
  if apt-cache show "$package" >/dev/null 2>&1; then
    available+=("$package")
  else
    echo "install_fonts.sh: skipping $package (not in this release)" >&2
  fi
done
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${available[@]}"
fc-cache -f
echo "install_fonts.sh: $(fc-list :lang=en file | wc -l) font faces with Latin letters"
