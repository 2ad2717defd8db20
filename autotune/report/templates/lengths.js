"use strict";
// Draws the charts of the length page, in the reader's colours. Reaches no network.
(function () {
  const read = (id) => document.getElementById(id).textContent;
  const figures = JSON.parse(read("chart-data"));
  const dark = JSON.parse(read("dark-colours"));
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");

  function coloured(figure) {
    const text = JSON.stringify(figure);
    if (!scheme.matches) return JSON.parse(text);
    return JSON.parse(text, (key, value) => (typeof value === "string" && dark[value]) || value);
  }

  function draw() {
    for (const element of document.querySelectorAll("[data-chart]")) {
      const figure = coloured(figures[element.dataset.chart]);
      figure.layout.autosize = true;
      if (element.clientWidth < 480) figure.layout.font.size = 11;
      Plotly.react(element, figure.data, figure.layout, { responsive: true, displayModeBar: false });
    }
  }
  draw();
  scheme.addEventListener("change", draw);
})();
