"use strict";
// Draws the charts of a page, in the reader's colours. Reaches no network.
(function () {
  const read = (id) => document.getElementById(id).textContent;
  const figures = JSON.parse(read("chart-data"));
  const dark = JSON.parse(read("dark-colours"));
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");

  function coloured(figure) {
    if (!scheme.matches) return JSON.parse(JSON.stringify(figure));
    const swap = (key, value) => (typeof value === "string" && dark[value]) || value;
    return JSON.parse(JSON.stringify(figure), swap);
  }

  function draw() {
    for (const element of document.querySelectorAll("[data-chart]")) {
      const figure = coloured(figures[element.dataset.chart]);
      const narrow = element.clientWidth < 480;
      figure.layout.autosize = true;
      if (narrow) {
        figure.layout.font.size = 11;
        Object.assign(figure.layout.legend, { entrywidth: 92, font: { size: 11 } });
      }
      Plotly.react(element, figure.data, figure.layout, { responsive: true, displayModeBar: false });
    }
  }
  draw();
  scheme.addEventListener("change", draw);
})();
